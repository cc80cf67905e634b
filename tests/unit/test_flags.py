from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.flags import ManagerOptions, Parser, add_manager_flags, manager_options, normalise, parse
from slurm_operator.kube.process.listen_address import ListenAddress


def options(*argv: str) -> ManagerOptions:
    parser = Parser(prog="manager", usage="", description="")
    add_manager_flags(parser)
    return manager_options(parse(parser, argv))


def test_defaults_are_those_of_the_go_operator() -> None:
    """Without flags the manager behaves as Slinky slurm-operator does without flags."""
    given = options()
    assert given.kubeconfig is None
    assert (given.health, given.metrics, given.profile) == (
        ListenAddress("", 8081),
        ListenAddress("", 8080),
        None,
    )
    assert (given.leader_elect, given.leader_elect_namespace) == (False, "")
    assert (given.metrics_secure, given.enable_http2) == (False, False)
    assert (given.namespaces, given.propagated_node_conditions) == ((), ())
    assert given.workers == dict.fromkeys(
        ("controller", "restapi", "accounting", "nodeset", "loginset", "slurmclient", "token", "cluster"), 1
    )
    assert given.slurm_api_override is None
    assert (given.log.effective_encoder, given.log.effective_level) == ("json", logging.INFO)
    assert given.log.effective_stacktrace_level == logging.ERROR
    assert given.log.time_encoding == "rfc3339"


def test_every_flag_has_its_effect() -> None:
    """Each flag is accepted and arrives in the options."""
    given = options(
        "--kubeconfig=/k",
        "--health-addr=127.0.0.1:1",
        "--metrics-addr=[::1]:2",
        "--metrics-secure",
        "--enable-http2",
        "--leader-elect",
        "--leader-elect-namespace=ops",
        "--namespaces=a,b, a",
        "--propagated-node-conditions=DiskPressure,example.com/GPU",
        "--profile",
        "--profile-addr=localhost:3",
        "--slurm-api-override=http://localhost:6820/",
        "--zap-devel",
        "--zap-encoder=json",
        "--zap-log-level=error",
        "--zap-stacktrace-level=panic",
        "--zap-time-encoding=nanos",
        *(f"--{name}-workers={count}" for count, name in enumerate(options().workers, 2)),
    )
    assert given.kubeconfig == "/k"
    assert (given.health, given.metrics) == (ListenAddress("127.0.0.1", 1), ListenAddress("::1", 2))
    assert given.metrics_secure
    assert given.enable_http2
    assert given.leader_elect
    assert given.leader_elect_namespace == "ops"
    assert given.namespaces == ("a", "b")
    assert given.propagated_node_conditions == ("DiskPressure", "example.com/GPU")
    assert given.profile == ListenAddress("localhost", 3)
    assert list(given.workers.values()) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert given.slurm_api_override == "http://localhost:6820"
    assert (given.log.devel, given.log.effective_encoder) == (True, "json")
    assert (given.log.effective_level, given.log.effective_stacktrace_level) == (
        logging.ERROR,
        logging.CRITICAL,
    )
    assert given.log.time_encoding == "nanos"


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_go_spellings(dashes: str) -> None:
    """One dash or two, a value after a space or an equals sign: all mean the same."""
    assert options(f"{dashes}metrics-addr=0").metrics is None
    assert options(f"{dashes}metrics-addr", "0").metrics is None
    assert options(f"{dashes}leader-elect").leader_elect
    assert options(f"{dashes}leader-elect=true").leader_elect
    assert not options(f"{dashes}leader-elect=false").leader_elect
    assert not options(f"{dashes}leader-elect=F").leader_elect
    assert options(f"{dashes}leader-elect=1").leader_elect


def test_a_boolean_does_not_swallow_the_next_word() -> None:
    """A boolean takes its value only after an equals sign, so the flag behind it is still a flag."""
    given = options("--leader-elect", "--metrics-secure", "--namespaces", "a")
    assert (given.leader_elect, given.metrics_secure, given.namespaces) == (True, True, ("a",))


def test_a_value_may_look_like_a_flag() -> None:
    """As in Go, the word after a flag that takes a value is the value, whatever it looks like."""
    assert options("--kubeconfig", "-k").kubeconfig == "-k"


def test_the_last_of_repeated_flags_counts() -> None:
    """A chart that appends extra arguments can override what it set before."""
    assert options("--nodeset-workers=1", "--nodeset-workers=9").workers["nodeset"] == 9


def test_empty_values_mean_the_default() -> None:
    """A chart that always writes a flag may leave its value empty."""
    given = options(
        *(
            "--namespaces=",
            "--leader-elect-namespace=",
            "--zap-log-level=",
            "--zap-encoder=",
            "--kubeconfig=",
        ),
        "--slurm-api-override=",
    )
    assert given.slurm_api_override is None
    assert (given.namespaces, given.leader_elect_namespace, given.kubeconfig) == ((), "", None)
    assert given.log.effective_level == logging.INFO
    assert options("--zap-time-encoding=", "--zap-stacktrace-level=").log == options().log


def test_an_empty_address_is_what_controller_runtime_makes_of_it() -> None:
    """Empty is the default for the metrics and off for the health probes; 0 is off for both."""
    given = options("--metrics-addr=", "--health-addr=")
    assert (given.metrics, given.health) == (ListenAddress("", 8080), None)
    given = options("--metrics-addr=0", "--health-addr=0")
    assert (given.metrics, given.health) == (None, None)


@pytest.mark.parametrize("level", ["warn", "WARN", "Warn"])
@pytest.mark.parametrize("encoder", ["console", "CONSOLE", "Console"])
@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("ISO8601", "iso8601"), ("RFC3339Nano", "rfc3339nano"), ("Nanos", "nanos"), ("nano", "nanos")],
)
def test_zap_values_are_read_in_any_case(level: str, encoder: str, encoding: str, expected: str) -> None:
    """Encoders, levels and time encodings may be written in capitals, and nanoseconds as nano or nanos."""
    given = options(
        f"--zap-log-level={level}",
        f"--zap-stacktrace-level={level}",
        f"--zap-encoder={encoder}",
        f"--zap-time-encoding={encoding}",
    ).log
    assert (given.level, given.stacktrace_level) == (logging.WARNING, logging.WARNING)
    assert (given.encoder, given.time_encoding) == ("console", expected)


def test_the_status_api_is_on_unless_it_is_switched_off() -> None:
    """It listens on port 8082; 0 disables it."""
    assert options().status == ListenAddress("", 8082)
    assert options("--status-addr=0").status is None
    assert options("--status-addr=127.0.0.1:9").status == ListenAddress("127.0.0.1", 9)


def test_profile_address_alone_opens_nothing() -> None:
    """The debug server listens only when --profile asks for it."""
    assert options("--profile-addr=localhost:1").profile is None


WRONG = [
    (["--nodeset-workers=0"], ["--nodeset-workers", "from 1 to 1000", "'0'"]),
    (["--nodeset-workers=-3"], ["--nodeset-workers", "whole number"]),
    (["--token-workers=two"], ["--token-workers", "whole number", "'two'"]),
    (["--token-workers=²"], ["--token-workers", "whole number"]),
    (["--health-addr=8081"], ["--health-addr", ":port"]),
    (["--health-addr=:99999"], ["--health-addr", "host:port"]),
    (["--metrics-addr=::1:8080"], ["--metrics-addr", "[::1]:8080"]),
    (["--profile-addr=localhost"], ["--profile-addr", "host:port"]),
    (["--leader-elect=yes"], ["--leader-elect", "true or false", "'yes'"]),
    (["--leader-elect", "true"], ["unknown flag or argument", "true"]),
    (["--namespaces=a,Not_Good"], ["--namespaces", "'Not_Good'", "lower-case"]),
    (["--leader-elect-namespace=-x"], ["--leader-elect-namespace", "'-x'"]),
    (["--propagated-node-conditions=a b"], ["--propagated-node-conditions", "DiskPressure"]),
    (["--zap-log-level=loud"], ["--zap-log-level", "debug, info, warn, error, panic", "'loud'"]),
    (["--zap-log-level=0"], ["--zap-log-level", "above 0"]),
    (["--zap-encoder=xml"], ["--zap-encoder", "json, console"]),
    (["--zap-stacktrace-level=never"], ["--zap-stacktrace-level", "info"]),
    (["--zap-time-encoding=sundial"], ["--zap-time-encoding", "rfc3339nano"]),
    (["--slurm-api-override=slurm:6820"], ["--slurm-api-override", "http"]),
    (["--slurm-api-override=http://"], ["--slurm-api-override", "host"]),
    (["--metrics-addr"], ["--metrics-addr", "expected one argument"]),
    (["--no-such-flag=1"], ["unknown flag", "--no-such-flag"]),
    (["--metrics"], ["unknown flag", "--metrics"]),
    (["stray"], ["unknown flag or argument", "stray"]),
]


@pytest.mark.parametrize(("argv", "words"), WRONG, ids=" ".join)
def test_mistakes_are_one_line_with_the_flag_and_the_remedy(
    argv: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong flag or value ends with code 2 and one line that names it and what is allowed."""
    with pytest.raises(SystemExit) as stopped:
        options(*argv)
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for word in words:
        assert word in err


@given(
    choices=st.lists(
        st.tuples(st.sampled_from(["a", "b", "x", "y"]), st.booleans(), st.booleans(), st.text(max_size=5)),
        max_size=6,
    )
)
def test_normal_form_does_not_depend_on_the_spelling(choices: list[tuple[str, bool, bool, str]]) -> None:
    """However flags are spelled, their normal form is `--flag=value`, and it is stable."""
    booleans, valued = frozenset({"a", "b"}), frozenset({"x", "y"})
    argv: list[str] = []
    expected: list[str] = []
    for name, one_dash, apart, value in choices:
        flag = ("-" if one_dash else "--") + name
        if name in booleans and apart:
            argv, expected = [*argv, flag], [*expected, f"--{name}=true"]
        elif apart:
            argv, expected = [*argv, flag, value], [*expected, f"--{name}={value}"]
        else:
            argv, expected = [*argv, f"{flag}={value}"], [*expected, f"--{name}={value}"]
    assert normalise(argv, booleans, valued) == expected
    assert normalise(expected, booleans, valued) == expected
