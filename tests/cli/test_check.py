"""``treefold check``, as a pipeline uses it."""

import json
from pathlib import Path

from command_line import treefold

CHAIN = """
from treefold import CodeFunction, RunContext, agent, tool

print("loaded")

@tool
async def look(path: str) -> str:
    '''Look at a file.

    Args:
        path: which.
    '''
    raise AssertionError("nothing is run")

@agent(model="anthropic:claude-opus-4-1", uses=[look])
def explain(path: str) -> str:
    '''Explain a file.'''
    raise AssertionError("nothing is run")

async def work(ctx: RunContext, folder: str, depth: int = 1) -> str:
    '''Explain a folder.'''
    raise AssertionError("nothing is run")

main = CodeFunction(callable=work, name="main", uses=[look, explain], uses_recursion=True)

@agent(uses=[main])
def oversee(folder: str) -> str:
    raise AssertionError("nothing is run")
"""
FAULTY = """
from treefold import AgentFunction, CodeFunction, Ensemble

def first(ctx): ...
def second(ctx): ...

one = CodeFunction(callable=first, name="same")
two = CodeFunction(callable=second, name="same")
greet = AgentFunction("greet", "Greet.", user_prompt_template="Greet {nam}!")
both = Ensemble(AgentFunction("say", "Say.", user_prompt_template="Say."), {"quick": 2})
"""


def written(folder: Path, text: str) -> str:
    path = folder / "job.py"
    path.write_text(text)
    return str(path)


def test_each_function_has_a_line_and_who_calls_whom_is_a_tree():
    done = treefold("check", "examples/survey.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "code  measure(path)  Count lines and functions of one file.\n"
        "code  note(path, lines)  Remember a file and how long it is.\n"
        "code  name_longest()  Say which of the remembered files is the longest.\n"
        "code  survey(folder)  Measure every Python file below a folder, all at once, and name the"
        " longest.\n"
        "\n"
        "note\n"
        "name_longest\n"
        "survey\n"
        "└─ measure\n"
    )


def test_nothing_is_run_and_no_key_is_needed(tmp_path: Path):
    done = treefold("check", written(tmp_path, CHAIN))
    assert (done.returncode, done.stderr) == (0, "loaded\n")
    assert done.stdout == (
        "code  look(path)  Look at a file.\n"
        "agent explain(path)  Explain a file.\n"
        "code  main(folder, depth)  Explain a folder.\n"
        "agent oversee(folder)\n"
        "\n"
        "oversee\n"
        "└─ main\n"
        "   ├─ look\n"
        "   ├─ explain\n"
        "   │  └─ look\n"
        "   └─ main (again)\n"
    )


def test_what_was_shown_is_not_shown_again(tmp_path: Path):
    module = "from treefold import RunContext, tool\n@tool\nasync def f0() -> None: ...\n"
    for n in range(1, 40):  # two ways down from each would be as many lines as the world has sand
        twins = [
            f"@tool(uses=[f{n - 1}])\nasync def {x}{n}(ctx: RunContext) -> None: ...\n"
            for x in ("a", "b")
        ]
        module += "".join(twins)
        module += f"@tool(uses=[a{n}, b{n}])\nasync def f{n}(ctx: RunContext) -> None: ...\n"
    done = treefold("check", f"{written(tmp_path, module)}:f39")
    tree = done.stdout.split("\n\n")[1].splitlines()
    assert done.returncode == 0
    assert tree[:2] == ["f39", "├─ a39"]
    assert tree[-2:] == ["└─ b39", "   └─ f38 (see above)"]
    assert len(tree) == 1 + 39 * 4


def test_all_faults_are_listed_and_exit_code_1(tmp_path: Path):
    done = treefold("check", written(tmp_path, FAULTY))
    assert done.returncode == 1
    assert done.stdout.startswith("code  same()\ncode  same()\nagent greet()  Greet.\n")
    told = done.stderr.splitlines()
    assert [line.split(":")[1] for line in told] == [" same", " greet", " say_ensemble"]
    assert "two functions are called 'same'" in told[0]
    assert "its prompt has {nam}, which is none of its arguments" in told[1]
    assert "no provider is called 'quick'" in told[2]


def test_names_of_models_that_the_program_knows_can_be_given(tmp_path: Path):
    models = ["--model", "first=local", "--model", "second=openai:gpt-5"]
    assert treefold("check", "examples/research.py").returncode == 1
    assert treefold("check", "examples/research.py", *models).returncode == 0
    done = treefold("check", "examples/research.py", *models, "--model", "nobody:knows")
    assert done.returncode == 1
    assert "no provider is called 'nobody'" in done.stderr


def test_json_is_one_value_whatever_the_module_prints(tmp_path: Path):
    done = treefold("check", f"{written(tmp_path, CHAIN)}:explain", "--json")
    path = {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    }
    described = {"path": {"type": "string", "description": "which."}}
    assert (done.returncode, done.stderr) == (0, "loaded\n")
    assert json.loads(done.stdout) == {
        "functions": [
            {
                "name": "explain",
                "agent": True,
                "description": "Explain a file.",
                "inputs": path,
                "uses": ["look"],
                "named": True,
            },
            {
                "name": "look",
                "agent": False,
                "description": "Look at a file.",
                "inputs": path | {"properties": described},
                "uses": [],
                "named": False,
            },
        ],
        "faults": [],
    }
    faulty = treefold("check", written(tmp_path, FAULTY), "--json")
    assert faulty.returncode == 1
    assert len(json.loads(faulty.stdout)["faults"]) == 3


def test_what_json_cannot_express_is_a_fault_only_if_a_model_is_to_say_it(tmp_path: Path):
    odd = "from treefold import CodeFunction, agent\nclass Odd: ...\ndef f(ctx, x: Odd): ...\n"
    odd += "take = CodeFunction(callable=f, name='take')\n"
    code = treefold("check", written(tmp_path, odd), "--json")
    assert code.returncode == 0
    assert [one["inputs"] for one in json.loads(code.stdout)["functions"]] == [None]
    told = odd + "@agent(uses=[take])\ndef tell() -> str: return 'x'\n"
    model = treefold("check", written(tmp_path, told))
    assert model.returncode == 1
    assert "treefold check: tell: 'take' takes something that JSON cannot express" in model.stderr


def test_what_cannot_be_loaded_is_exit_code_2(tmp_path: Path):
    for target, words in [
        (written(tmp_path, "1 / 0"), "ZeroDivisionError"),
        ("examples/survey.py:nothing", "has no function 'nothing'"),
        ("no_such_module", "No module named 'no_such_module'"),
    ]:
        done = treefold("check", "examples/survey.py", target)
        assert (done.returncode, done.stdout, words in done.stderr) == (2, "", True), done.stderr
        assert done.stderr.startswith("treefold check: ")
