"""Answers of slurmrestd for tests that read them, and the error that each means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurm_operator.slurm.decode.refusals import Question, Reply
from slurm_operator.slurm.decode.replies import Envelope, NodesReply, read
from slurm_operator.slurm.errors import SlurmError

QUESTION = Question("list nodes of http://slurm:6820", frozenset({2018}), "s3cret-token")


def reply(content: object, status: int = 200, content_type: str = "application/json") -> Reply:
    """Return an answer with this content."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Reply(status, content_type, body)


def failed(number: int = 0, text: str = "") -> dict[str, Any]:
    """Return the content of an answer with one error."""
    return {"errors": [{"description": text or "Failure", "error_number": number, "error": "why"}]}


def refused(answer: Reply, shape: type[Envelope] = NodesReply) -> SlurmError:
    """Return the error that an answer is read as; it names the question, and never the token."""
    with pytest.raises(SlurmError) as caught:
        read(answer, shape, QUESTION)
    assert str(caught.value).startswith(QUESTION.what)
    assert "s3cret-token" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return caught.value
