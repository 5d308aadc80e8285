"""The demonstration of a cluster, in a small form: real workers, and a real database."""

import re

import warm_python
from command_results import environment
from example_runs import EXAMPLES
from postgres_server import new_name, shared_url, with_query


def test_runs_of_a_worker_that_is_killed_are_taken_over_and_no_recorded_reply_is_asked_for_again():
    url = with_query(shared_url(), schema=new_name())
    options = ("--store", url, "--runs", "8", "--workers", "2", "--slots", "3", "--lease", "3")
    options += ("--seconds", "0.1")

    done = warm_python.run(str(EXAMPLES / "cluster" / "demo.py"), *options, env=environment())

    assert done.returncode == 0, (done.stdout, done.stderr)
    assert len(re.findall(r"==> worker-\d is ready on postgresql://", done.stdout)) == 2
    assert re.search(r"==> killed worker-\d with SIGKILL, which ran \d of them", done.stdout)
    assert "==> 8 of 8 runs ended right" in done.stdout
    assert "of them were taken over from the worker that was killed" in done.stdout
    asked = re.search(
        r"the model was asked (\d+) times for 32 recorded replies: (\d+) requests were lost with"
        r" the worker, and 0 recorded replies were asked for again",
        done.stdout,
    )
    assert asked is not None, done.stdout
    assert int(asked[1]) == 32 + int(asked[2])


def test_the_database_of_the_demonstration_starts_without_rights_and_leaves_nothing_behind():
    program = (
        "import psycopg\n"
        "from database import temporary_database\n"
        "with temporary_database() as url, psycopg.connect(url) as connection:\n"
        "    print(connection.execute('SELECT 6 * 7').fetchone()[0])\n"
        "try:\n"
        "    psycopg.connect(url)\n"
        "except psycopg.OperationalError:\n"
        "    print('gone')\n"
    )

    done = warm_python.run("-c", program, env=environment(), cwd=EXAMPLES / "cluster")

    assert (done.returncode, done.stdout) == (0, "42\ngone\n"), done.stderr
