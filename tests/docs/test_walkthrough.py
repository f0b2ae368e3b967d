"""The commands that README and documents print run as a new user would run them."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.walkthrough import FailedError, Step, _page_steps, steps, walk

ROOT = Path(__file__).parents[2]

PAGE = """# A page

```
.venv/bin/qccf plan femnist --seeds 20          # prints a table
qccf plan [PRESET|FILE.toml] [--seeds K]
```

```console
$ qccf plan paper-table
qccf: no client can ever upload
```

```python
print(1)
```

```toml
qccf = 1
```
"""


def test_commands_and_python_blocks_are_found() -> None:
    found = list(_page_steps("page.md", PAGE))
    assert [(step.line, step.command) for step in found] == [
        (4, "qccf plan femnist --seeds 20"),
        (5, "qccf plan [PRESET|FILE.toml] [--seeds K]"),
        (9, "qccf plan paper-table"),
        (13, "<python>"),
    ]
    assert found[0].short == "qccf plan femnist --seeds 2 --rounds 4"
    assert [step.rule.lane for step in found] == ["quick", "never", "quick", "slow"]
    assert found[2].rule.status == 2
    assert found[3].code == "print(1)\n"


def test_a_command_that_no_rule_knows_is_an_error() -> None:
    with pytest.raises(SystemExit, match="no rule knows 'qccf dance'"):
        _ = Step("page.md", 1, "qccf dance").rule


def test_a_command_that_fails_ends_the_walk(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[radio]\nbandwith_hz = 1e7\n")
    with pytest.raises(FailedError, match=r"(?s)page\.md, line 7: .*ended with 2.*did you mean radio\.bandwidth_hz"):
        walk([Step("page.md", 7, "qccf plan broken.toml")], tmp_path, quick=True, python=Path(sys.executable))


def test_every_command_of_the_documents_has_a_rule() -> None:
    found = list(steps(ROOT))
    assert len(found) > 50
    assert all(step.rule.lane in ("quick", "slow") or step.rule.why for step in found)


@pytest.mark.long
def test_the_quick_part_of_the_walk() -> None:
    command = [sys.executable, "-m", "support.walkthrough", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) >= 20
