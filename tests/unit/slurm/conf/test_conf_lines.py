"""Lines of Slurm's configuration files: what is read from the user's, and what may be written."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_operator.slurm.conf.conf_lines import ConfError, check_line, merged, password, port, settings, word

NAMES = st.text(alphabet="abcXYZ_", min_size=1, max_size=8)
OPTIONS = st.builds(
    lambda name, value: f"{name}={value}" if value else name,
    st.sampled_from(["a", "A", "b", "Bc", "key", "KEY"]),
    st.sampled_from(["", "1", "/Path/X"]),
)
VALUES = st.lists(OPTIONS, min_size=1, max_size=6).map(",".join)
REQUIRED = {"List": ("a", "key=/etc/key")}


def _name(option: str) -> str:
    return option.partition("=")[0].lower()


# --------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1", {"a": "1"}),
        ("A=1\nA=2", {"a": "2"}),
        ("A=1\na=2", {"a": "2"}),
        ("A=1\r\nB=2\r\n", {"a": "1", "b": "2"}),
        ("  A = 1  ", {"a": "1"}),
        ("A=1 # why", {"a": "1"}),
        ("# A=1", {}),
        ("A=1#2", {"a": "1"}),
        ("A=x=y", {"a": "x=y"}),
        ("A=1,\\\n2", {"a": "1,2"}),
        ("A=1,\\\r\n2\r\n", {"a": "1,2"}),
        ("A=1,\\\n\n# between\n2", {"a": "1,2"}),
        ("A=1,\\ # why\n2", {"a": "1,2"}),
        ("A=1,\\", {"a": "1,"}),
        ("A=\\\n1\nB=2", {"a": "1", "b": "2"}),
        ("A=", {}),
        ("=1", {}),
        ("A", {}),
        ("", {}),
        ("NodeName=n CPUs=2", {}),
        ("A=1\nA=2 B=3", {"a": "1"}),
        ("A=1\tB=2", {}),
    ],
)
def test_settings(text: str, found: dict[str, str]) -> None:
    """A parameter is what the last simple `Name=value` line says, comments and continuations considered."""
    assert settings(text) == found


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6), st.sampled_from(["\n", "\r\n", " # x\n", "\t\n\n"]))
def test_settings_reads_what_was_written(pairs: list[tuple[str, str]], end: str) -> None:
    """Whatever ends a line, the last value of each name is found, under its name in lower case."""
    text = "".join(f"{name}={value}{end}" for name, value in pairs)
    assert settings(text) == {name.lower(): value for name, value in pairs}


@given(NAMES, VALUES, st.data())
def test_a_line_may_be_continued_anywhere_in_its_value(name: str, value: str, data: st.DataObject) -> None:
    """A backslash and a line break inside of a value change nothing."""
    cut = data.draw(st.integers(0, len(value)))
    assert settings(f"{name}={value[:cut]}\\\n{value[cut:]}") == settings(f"{name}={value}")


@given(st.text(max_size=80))
@example("\\\n\\\r\n#\\\n=")
def test_settings_accepts_any_text(text: str) -> None:
    """Any text can be read, and no value found in it has a blank in it or is empty."""
    for name, value in settings(text).items():
        assert name == name.lower().strip()
        assert value
        assert not any(character.isspace() for character in value)


# --------------------------------------------------------------------------------------------------- merging


def test_a_list_that_the_user_leaves_alone_is_not_repeated() -> None:
    """Only a required list that the user sets, too, gets a merged line."""
    assert merged("Other=1", REQUIRED) == []


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ("List=b", "List=a,b,key=/etc/key"),
        ("LIST=b", "List=a,b,key=/etc/key"),
        ("List=A", "List=a,key=/etc/key"),
        ("List=key=/other", "List=a,key=/etc/key"),
        ("List=B=1,b=2", "List=a,b=1,key=/etc/key"),
        ("List=,b,,", "List=a,b,key=/etc/key"),
        ("List=MiXed=VaLue", "List=a,key=/etc/key,mixed=value"),
        ('List="b,c"', "List=a,b,c,key=/etc/key"),
        ("List=b\nList=c", "List=a,c,key=/etc/key"),
    ],
)
def test_merged(extra: str, line: str) -> None:
    """The merged line is the sorted union; ours win, the first of the user's wins, all in lower case."""
    assert merged(extra, REQUIRED) == [line]


@given(VALUES)
def test_merging_loses_no_option_and_changes_none_of_ours(value: str) -> None:
    """Every option name of either side is in the merged line exactly once, and ours have our value."""
    (line,) = merged(f"List={value}", REQUIRED)
    options = line.removeprefix("List=").split(",")
    names = [_name(option) for option in options]
    assert sorted(names) == sorted({_name(option) for option in [*value.split(","), *REQUIRED["List"]]})
    assert set(REQUIRED["List"]) <= set(options)
    assert options == sorted(options)


@given(VALUES)
def test_merging_again_changes_nothing(value: str) -> None:
    """A user who copies the merged line into extraConf gets the same line."""
    once = merged(f"List={value}", REQUIRED)
    assert merged(once[0], REQUIRED) == once


def test_merged_lines_are_in_the_order_of_their_names() -> None:
    """Several merged lists come sorted by parameter."""
    required = {"Zeta": ("z",), "Alpha": ("a",)}
    assert merged("zeta=1\nalpha=2", required) == ["Alpha=2,a", "Zeta=1,z"]


# --------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    "value", ["a\nB=1", "a\r", "a\x00", "a\x85b", "a\u2028b", "a b", "a#b", 'a"b', "a\\", ""]
)
def test_a_word_that_would_break_its_line_is_refused(value: str) -> None:
    """A value that ends its line, its word or nothing at all is refused with the parameter's name."""
    with pytest.raises(ConfError, match=r"^ClusterName: ") as caught:
        word("ClusterName", value)
    assert caught.value.parameter == "ClusterName"


@given(st.text(max_size=20))
def test_a_word_that_is_accepted_reads_back(value: str) -> None:
    """What a word line sets is the value that was given, and nothing else."""
    try:
        line = word("Name", value)
    except ConfError:
        return
    assert settings(f"Before=1\n{line}\nAfter=2") == {"before": "1", "name": value, "after": "2"}


@pytest.mark.parametrize("number", [0, -1, 65536])
def test_no_port(number: int) -> None:
    """A number that is no port is refused."""
    with pytest.raises(ConfError, match=r"^SlurmctldPort: .* from 1 to 65535"):
        port("SlurmctldPort", number)


@pytest.mark.parametrize("value", ["Default=YES\nNodeName=x", "State=UP \\", "a\x0bb"])
def test_free_text_stays_on_its_line(value: str) -> None:
    """Options of a partition may hold blanks, but neither a line break nor a backslash at the end."""
    with pytest.raises(ConfError, match=r"^PartitionName: "):
        check_line("PartitionName", value)
    check_line("PartitionName", "Default=YES MaxTime=1-0")


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("s3cret", "StoragePass=s3cret"),
        ("a#b", "StoragePass=a\\#b"),
        ("a\\b", "StoragePass=a\\\\b"),
        ("a b", 'StoragePass="a b"'),
        ("a b#", 'StoragePass="a b\\#"'),
        ('a"b', 'StoragePass=a"b'),
        ("'", "StoragePass='"),
        ("x\\", "StoragePass=x\\\\"),
    ],
)
def test_passwords_are_escaped(value: str, line: str) -> None:
    """A password is written so that Slurm reads what was given: it undoes backslashes and outer quotes."""
    assert password("StoragePass", value) == line


@pytest.mark.parametrize(
    "value", ["hunter2\nStorageHost=evil", "hunter2\r", '"hunter2"', 'hunter2 "x', "hunter2\x00"]
)
def test_a_password_that_cannot_be_written_is_refused_unseen(value: str) -> None:
    """The refusal of a password names its parameter and shows nothing of it."""
    with pytest.raises(ConfError, match=r"^StoragePass: ") as caught:
        password("StoragePass", value)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value)
