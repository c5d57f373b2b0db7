"""What a forecaster calls: is my joint forecast calibrated, and if not, how?"""

from typing import TYPE_CHECKING

from prerank._lazy import public_names

if TYPE_CHECKING:
    from prerank.diagnosis.checking import check, check_pits
    from prerank.diagnosis.comparison import Comparison, compare, compare_over_time
    from prerank.diagnosis.groups import GroupedCheck, grouped
    from prerank.diagnosis.recommendation import Recommendation, recommend
    from prerank.diagnosis.result import Check

_HOMES = {
    "Check": "result",
    "Comparison": "comparison",
    "GroupedCheck": "groups",
    "Recommendation": "recommendation",
    "check": "checking",
    "check_pits": "checking",
    "compare": "comparison",
    "compare_over_time": "comparison",
    "grouped": "groups",
    "recommend": "recommendation",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = public_names("prerank.diagnosis", _HOMES)
