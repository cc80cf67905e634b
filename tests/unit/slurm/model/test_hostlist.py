"""Hostlists: what is folded is what is expanded, and a mistake is named where it is."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
from ClusterShell.NodeSet import NodeSet  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.model.hostlist import expand, fold, natural, single, split

if TYPE_CHECKING:
    from random import Random

digits = st.text("0123456789", min_size=1, max_size=5)
text = st.text("abn-.", min_size=1, max_size=3)
# Few letters and small numbers, so that names often share a shape.
names = st.lists(st.tuples(text, digits, text | st.just(""), digits | st.just("")).map("".join), max_size=40)
anything = st.text(
    st.characters(exclude_characters="[],", exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=30
)


@given(names | st.lists(anything, max_size=10))
def test_expanding_returns_what_was_folded(given_names: list[str]) -> None:
    """Folding loses no name, adds none, and drops only duplicates."""
    folded = expand(fold(given_names))
    assert sorted(folded) == sorted(set(given_names))


@given(names, st.randoms(use_true_random=False))
def test_a_set_of_names_has_one_folded_form(given_names: list[str], random: Random) -> None:
    """The order in which names come in, and how often, does not change the text."""
    shuffled = given_names * 2
    random.shuffle(shuffled)
    assert fold(shuffled) == fold(given_names)


@given(names.filter(bool))
def test_clustershell_reads_our_lists(given_names: list[str]) -> None:
    """Another implementation expands our text to the same names."""
    assert set(NodeSet(fold(given_names))) == set(given_names)


@given(names.filter(bool))
def test_we_read_the_lists_of_clustershell(given_names: list[str]) -> None:
    """The text of another implementation is expanded to the same names."""
    assert set(expand(str(NodeSet.fromlist(given_names)))) == set(given_names)


@given(names, st.integers(8, 200))
def test_chunks_keep_their_size_and_every_name(given_names: list[str], size: int) -> None:
    """Each chunk is within its bytes unless it is a single name, and together they name each node once."""
    chunks = split(given_names, size)
    assert sorted(name for chunk in chunks for name in expand(chunk)) == sorted(set(given_names))
    assert all(len(chunk.encode()) <= size or len(expand(chunk)) == 1 for chunk in chunks)


@pytest.mark.parametrize(
    ("given_names", "folded"),
    [
        (["n1", "n2", "n3", "n10"], "n[1-3,10]"),
        (["n3", "n1", "n2", "n2"], "n[1-3]"),
        (["n08", "n09", "n10", "n11"], "n[08-11]"),
        (["n01", "n1", "n001"], "n[1,01,001]"),
        (["n099", "n100", "n0101"], "n[099-100,0101]"),
        (["n98", "n99", "n100"], "n[98-100]"),
        (["n09", "n99", "n100"], "n[100,09,99]"),
        (["a-1-b", "a-2-b"], "a-[1-2]-b"),
        (["r1n1", "r1n2", "r2n1", "r2n2"], "r1n[1-2],r2n[1-2]"),
        ([f"r{rack}n{node}" for rack in range(1, 31) for node in (1, 2)], "r[1-30]n1,r[1-30]n2"),
        (["ip-10-0-0-7", "ip-10-0-0-8", "ip-10-0-1-7"], "ip-10-0-0-[7-8],ip-10-0-1-7"),
        (["login", "n-", "x--", "n-1"], "login,n-,n-1,x--"),
        (["1", "2", "3"], "[1-3]"),
        (["n2", "n10", "login2", "login"], "login,login2,n[2,10]"),
        (["worker-9"], "worker-9"),
        ([], ""),
    ],
)
def test_folded_form(given_names: list[str], folded: str) -> None:
    """A range joins neighbours of one width; the number that varies most is in the bracket."""
    assert fold(given_names) == folded


def test_numbers_beyond_64_bits_stay_text() -> None:
    """Slurm counts with 64 bits, so only what fits is ever counted in a range."""
    long = [f"n{10**24 + number}" for number in range(3)]
    assert fold(long) == "n100000000000000000[0000000-0000002]"
    assert expand(fold(long)) == long


def test_a_range_is_no_longer_than_slurm_takes() -> None:
    """More than 65,536 numbers in a row are written as several ranges."""
    assert fold(f"n{number}" for number in range(65_537)) == "n[0-65535,65536]"


@pytest.mark.parametrize(
    ("hostlist", "expanded"),
    [
        ("n[001-003,12]", ["n001", "n002", "n003", "n12"]),
        ("x[1-2][3-4]y", ["x13y", "x14y", "x23y", "x24y"]),
        ("n[8-011]", ["n8", "n9", "n10", "n11"]),
        ("n[01,1,001]", ["n01", "n1", "n001"]),
        ("a,b,a", ["a", "b", "a"]),
        ("n[1-3,2]", ["n1", "n2", "n3", "n2"]),
        (",,a,\n b ", ["a", "b"]),
        ("[1-2]", ["1", "2"]),
        ("a-[1-2]-", ["a-1-", "a-2-"]),
        ("n[18446744073709551615]", ["n18446744073709551615"]),
        ("", []),
    ],
)
def test_expanded_form(hostlist: str, expanded: list[str]) -> None:
    """Names come in the order of the list, with their padding and their repetitions."""
    assert expand(hostlist) == expanded


@pytest.mark.parametrize(
    ("hostlist", "problem"),
    [
        ("n[5-1]", "the range '5-1' runs backwards at position 3"),
        ("n[1", "'[' that is not closed, or one inside another at position 2"),
        ("a,b[1-2,[3]]", "'[' that is not closed, or one inside another at position 4"),
        ("n[1,,2]", "'' where a number or a range is expected at position 5"),
        ("n[]", "'' where a number or a range is expected at position 3"),
        ("n[1-]", "'1-' where a number or a range is expected at position 3"),
        ("n[1 -3]", "'1 -3' where a number or a range is expected at position 3"),
        ("n[0-9/2]", "'0-9/2' where a number or a range is expected at position 3"),
        ("n[٣]", "'٣' where a number or a range is expected at position 3"),
        ("n[1-3]]", "']' without a '[' at position 7"),
        (
            "n[18446744073709551616]",
            "'18446744073709551616' has a number above 18446744073709551615 at position 3",
        ),
        (f"n[{'9' * 5000}]", "has a number above"),
        ("n[1-9][0-99999]", "stands for more than 65536 names"),
        ("[1-9][1-9][1-9][1-9][1-9][1-9][1-9][1-9][1-9][1-9][1-9][1-9]", "stands for more than 65536 names"),
    ],
)
def test_a_mistake_is_named_with_its_place(hostlist: str, problem: str) -> None:
    """A list that cannot be read says what is wrong and where."""
    with pytest.raises(ValueError, match="hostlist ") as failure:
        expand(hostlist)
    assert problem in str(failure.value)
    assert len(str(failure.value)) < 200


def test_the_limit_counts_all_names_of_the_list() -> None:
    """The limit is on the whole list, and reaching it exactly is allowed."""
    assert len(expand("a[1-5],b[1-5]", limit=10)) == 10
    with pytest.raises(ValueError, match="more than 10 names"):
        expand("a[1-5],b[1-5],c", limit=10)


def test_many_brackets_are_not_made_before_they_are_counted() -> None:
    """A short text that stands for far too many names costs no more memory than the limit allows."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more than 1000 names"):
            expand("n" + "[0-999]" * 200, limit=1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("n[1-2]", "it has '[' at position 2"),
        ("a,b", "it has ',' at position 2"),
        ("a b", "it has ' ' at position 2"),
        ("ab\n", "it has '\\\\n' at position 3"),
        ("", "an empty node name"),
    ],
)
def test_a_name_that_would_be_read_otherwise_is_refused(name: str, problem: str) -> None:
    """A name cannot smuggle in other names: Slurm 24.11 even loses its slurmrestd to a stray bracket."""
    with pytest.raises(ValueError, match=problem.replace("[", r"\[")):
        fold(["n1", name])
    with pytest.raises(ValueError, match=problem.replace("[", r"\[")):
        single(name)


@given(names | st.lists(anything, max_size=10))
def test_one_name_is_written_as_a_list_of_one(given_names: list[str]) -> None:
    """The quick way for a single name gives what folding it gives."""
    assert [single(name) for name in given_names] == [fold([name]) for name in given_names]


def test_natural_order_counts() -> None:
    """Numbers are compared as numbers, and of equal ones the shorter comes first."""
    assert sorted(["n10", "n02", "n2", "n1", "m5", "n"], key=natural) == ["m5", "n", "n1", "n2", "n02", "n10"]
