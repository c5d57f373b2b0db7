"""The paper's experiments: what is run, what is recorded, and what it says."""

from typing import TYPE_CHECKING

from prerank._lazy import public_names

if TYPE_CHECKING:
    from prerank_paper.simulations.claims import PAPER_CLAIMS, claims_markdown, judge_claims
    from prerank._demonstration import PENALISED, STRENGTHS, Evaluated, demonstrate, demonstration_picture
    from prerank_paper.simulations.figures import needed_figure, power_figure, simulation_figure
    from prerank_paper.simulations.marginal import run_marginal
    from prerank_paper.simulations.marginal_figures import marginal_figure
    from prerank_paper.simulations.power import FULL_POWER, QUICK_POWER, cases_needed, run_power
    from prerank_paper.simulations.recommendations import recommendation_sentences, recommendations
    from prerank_paper.simulations.scenarios import Simulation, gaussian_field, gaussian_vector
    from prerank_paper.simulations.simulation import AS_PUBLISHED, EXACT, run_simulation
    from prerank_paper.simulations.table_files import require_folder, write_table

_HOMES = {
    "AS_PUBLISHED": "simulation",
    "EXACT": "simulation",
    "Evaluated": "demonstration",
    "FULL_POWER": "power",
    "PAPER_CLAIMS": "claims",
    "PENALISED": "demonstration",
    "QUICK_POWER": "power",
    "STRENGTHS": "demonstration",
    "Simulation": "scenarios",
    "cases_needed": "power",
    "claims_markdown": "claims",
    "demonstrate": "demonstration",
    "demonstration_picture": "demonstration",
    "gaussian_field": "scenarios",
    "gaussian_vector": "scenarios",
    "judge_claims": "claims",
    "marginal_figure": "marginal_figures",
    "needed_figure": "figures",
    "power_figure": "figures",
    "recommendation_sentences": "recommend",
    "recommendations": "recommend",
    "require_folder": "tables",
    "run_marginal": "marginal",
    "run_power": "power",
    "run_simulation": "simulation",
    "simulation_figure": "figures",
    "write_table": "tables",
}
__getattr__, __dir__ = public_names("prerank.studies", _HOMES)
