"""Simulated servers, right or wrong, for audits without a network."""

from otm.audit.streams.server.simulated.server import simulated_server as simulated_server
