"""What a user writes: the kinds of `slinky.slurm.net` and the names of everything made from them.

One module per kind. A kind is a frozen struct whose source is its documentation: the type and default of each
field, its constraints as markers, its description as the docstring below it. `schema` turns the structs into
the CustomResourceDefinitions that the API server enforces, so a default read here and a default stored there
are the same one. Nothing in this package does I/O on its own or knows how the objects are used; anybody may
import it.
"""

from __future__ import annotations

from slurm_operator.api.accounting import Accounting
from slurm_operator.api.cluster import Cluster
from slurm_operator.api.controller import Controller
from slurm_operator.api.loginset import LoginSet
from slurm_operator.api.nodeset import NodeSet
from slurm_operator.api.restapi import RestApi
from slurm_operator.api.shared import Kind
from slurm_operator.api.token import Token

KINDS: tuple[type[Kind], ...] = (Accounting, Cluster, Controller, LoginSet, NodeSet, RestApi, Token)

__all__ = ["KINDS", "Accounting", "Cluster", "Controller", "Kind", "LoginSet", "NodeSet", "RestApi", "Token"]
