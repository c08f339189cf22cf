"""One action an answer: what is read as a command, what as the end, what is told otherwise (C16, C22)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.envs.swe.actions import (
    MAX_BYTES,
    Command,
    FormatMistake,
    Submit,
    how_to_answer,
    read_action,
    write_command,
    write_submit,
)

FORMS = ("fenced", "xml_function")


def reason(text: str, form="fenced") -> str:
    action = read_action(text, form)
    assert isinstance(action, FormatMistake)
    return action.reason


def block(command: str) -> str:
    return f"```bash\n{command}\n```"


@pytest.mark.parametrize("language", ["bash", "sh", "shell", "BASH"])
def test_a_fenced_block_is_the_command_and_all_around_it_is_talk(language):
    text = f"I look first.\n\n```{language}\nls -la\ncat a.py\n```\n\nThen I shall see."
    assert read_action(text, "fenced") == Command(text="ls -la\ncat a.py")


@pytest.mark.parametrize(
    "text", ["submit", " Submit\n", "```submit\n```", "Done.\n```submit\n```", "```submit", block("submit")]
)
def test_submit_is_a_verb_of_its_own(text):
    assert read_action(text, "fenced") == Submit()


def test_talk_about_submitting_submits_nothing():
    assert "no block" in reason("I shall submit now.")
    assert read_action(block("echo submit"), "fenced") == Command(text="echo submit")


def test_blocks_in_other_languages_are_talk():
    assert read_action(f"```python\nprint(1)\n```\n{block('ls')}", "fenced") == Command(text="ls")
    assert "no block" in reason("```python\nprint(1)\n```")
    assert "no block" in reason("```\nls\n```")


def test_two_blocks_run_neither():
    assert "2 blocks" in reason(block("ls") + "\n" + block("rm x"))
    assert "2 blocks" in reason(block("ls") + "\n```submit\n```")


def test_a_block_without_end_is_told():
    assert "```bash is not closed" in reason("```bash\nls -la")
    assert "```python is not closed" in reason("```python\n" + "x = 1")


def test_a_longer_fence_holds_shorter_ones():
    text = "````bash\ncat > a.md <<'E'\n```\nx\n```\nE\n````"
    assert read_action(text, "fenced") == Command(text="cat > a.md <<'E'\n```\nx\n```\nE")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", ["", " \n\t ", "\n\n"])
def test_an_empty_command_is_told(form, command):
    assert "empty" in reason(write_command(command, form), form)


@pytest.mark.parametrize("form", FORMS)
def test_nul_and_lone_surrogates_are_told(form):
    assert "NUL" in reason(write_command("echo a\0b", form), form)
    assert "Unicode" in reason(write_command("echo \ud800", form), form)


@pytest.mark.parametrize("form", FORMS)
def test_64_kib_are_a_command_and_one_byte_more_is_not(form):
    most = "x" * MAX_BYTES
    assert read_action(write_command(most, form), form) == Command(text=most)
    assert f"{MAX_BYTES + 1} bytes" in reason(write_command(most + "x", form), form)
    assert f"{MAX_BYTES + 2} bytes" in reason(write_command("é" * (MAX_BYTES // 2 + 1), form), form)


def test_thoughts_do_not_count():
    assert read_action(f"<think>Maybe {block('rm -rf x')}?</think>\n{block('ls')}", "fenced") == Command(text="ls")
    assert read_action(f"Maybe {block('rm x')}</think>{block('ls')}", "fenced") == Command(text="ls")
    assert "no end" in reason(f"<think>{block('ls')}")


def test_windows_line_ends_are_read():
    assert read_action("```bash\r\nls\r\n```\r\n", "fenced") == Command(text="ls")


def test_a_function_call_is_the_command():
    text = "Look:\n<function=bash>\n<parameter=command>\ngrep -n '</x>' a.html\n</parameter>\n</function>"
    assert read_action(text, "xml_function") == Command(text="grep -n '</x>' a.html")
    assert read_action("<function=submit>\n</function>", "xml_function") == Submit()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (block("ls"), "no <function=bash>"),
        ("<function=bash><parameter=command>ls</parameter>", "no </function>"),
        ("<function=bash><parameter=command>ls</function>", "<parameter=command>…</parameter>"),
        ("<function=bash>ls</function>", "<parameter=command>…</parameter>"),
        ("<function=python><parameter=command>1</parameter></function>", "'python'"),
        (2 * "<function=bash><parameter=command>ls</parameter></function>", "2 function calls"),
    ],
)
def test_what_is_no_function_call_is_told(text, told):
    assert told in reason(text, "xml_function")


@pytest.mark.parametrize("form", FORMS)
def test_the_example_is_read_as_what_it_says(form):
    assert write_command("ls -la", form) in how_to_answer(form) and write_submit(form) in how_to_answer(form)
    assert read_action(write_submit(form), form) == Submit()


LINES = st.lists(st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), max_size=9), min_size=1)


@given(lines=LINES, form=st.sampled_from(FORMS))
def test_what_is_written_is_read_again(lines, form):
    command = "echo " + "\n".join(lines) + "\necho end"
    if "</parameter>" not in command and "<function=" not in command:
        assert read_action(write_command(command, form), form) == Command(text=command)


@given(text=st.text(alphabet="`bash\n<>=/ functionpramecd"), form=st.sampled_from(FORMS))
def test_any_text_is_an_action(text, form):
    assert isinstance(read_action(text, form), (Command, Submit, FormatMistake))


@pytest.mark.parametrize("text", ["```bash\n" * 200_000, "`" * 3_000_000, "<function=" * 300_000, "<think>" * 400_000])
def test_three_megabytes_are_read_at_once(text):
    began = time.process_time()
    for form in FORMS:
        assert len(reason(text, form)) < 200
    assert time.process_time() - began < 1.0


def test_what_is_told_is_text_whatever_was_written():
    for text in ("```\ud800\nx", "<function=\ud800></function>", "```\udfff\ud800" * 9):
        for form in FORMS:
            reason(text, form).encode()


FILE = "```\nx\n```"


@pytest.mark.parametrize("opening", ["<<EOF", "<<'EOF'", '<<"EOF"', "<<-EOF", "<< \\EOF"])
def test_a_here_document_that_a_fence_cuts_off_is_not_run(opening):
    """Bash would write what came as far as the fence: an empty file."""
    command = f"cat > README.md {opening}\n{FILE}\nEOF\nls"
    read = read_action(f"```bash\n{command}\n```", "fenced")
    assert isinstance(read, FormatMistake) and "'EOF'" in read.reason and "````" in read.reason
    assert read_action(f"````bash\n{command}\n````", "fenced") == Command(text=command)
    assert read_action(write_command(command, "fenced"), "fenced") == Command(text=command)


@pytest.mark.parametrize("command", ["python -c 'print(1 << n)'", "cat <<<EOF", "cat <<EOF\na\nEOF", "cat <<EOF\na"])
def test_other_uses_of_two_arrows_are_run(command):
    assert read_action(f"So:\n```bash\n{command}\n```\nDone", "fenced") == Command(text=command)


def test_a_parameter_that_bash_does_not_have_is_told():
    call = write_command("ls\n</parameter>\n<parameter=timeout>\n5", "xml_function")
    read = read_action(call, "xml_function")
    assert isinstance(read, FormatMistake) and "'timeout' was given as well" in read.reason
