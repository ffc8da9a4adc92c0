"""What tests of agents need: time and names in the hand, faults where they are wanted, and harnesses of faults."""

from hibernaut.testing.chaos_runs import chaos
from hibernaut.testing.clock import ManualClock, SequentialIds
from hibernaut.testing.crashes import crash_matrix
from hibernaut.testing.faults import FaultPlan, FaultyStore, SimulatedCrash
from hibernaut.testing.gates import Gate
from hibernaut.testing.life import Life, Scenario
from hibernaut.testing.play import Play, Said
from hibernaut.testing.report import Divergence, Report
from hibernaut.testing.seen import Seen
from hibernaut.testing.tool_servers import MemoryToolServers

__all__ = [
    "Divergence",
    "FaultPlan",
    "FaultyStore",
    "Gate",
    "Life",
    "ManualClock",
    "MemoryToolServers",
    "Play",
    "Report",
    "Said",
    "Scenario",
    "Seen",
    "SequentialIds",
    "SimulatedCrash",
    "chaos",
    "crash_matrix",
]
