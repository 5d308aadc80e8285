"""Stands for a program that ``warm_python`` forks: ``warm_launcher.py ADDRESS ARGUMENT...``.

It gives its files, folder and environment away, passes signals on, and ends as the program does.
"""

import json
import os
import signal
import socket
import sys
from typing import Any

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH)


def main(address: str, *args: str) -> None:
    """Have the program started, and wait for its end."""
    call = {"args": args, "env": dict(os.environ), "cwd": os.getcwd(), "in_terminal": False}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as warm:
        warm.connect(address)
        signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        socket.send_fds(warm, [json.dumps(call).encode()], [0, 1, 2])
        program = int(warm.recv(100))

        def pass_on(number: int, _frame: Any) -> None:
            os.kill(program, number)

        for number in PASSED_ON:
            signal.signal(number, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        for file in (0, 1, 2):  # or a reader would wait for our copies as well
            os.close(file)
        code = int(warm.recv(100))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
