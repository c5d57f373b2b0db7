"""What a forecaster calls: is my joint forecast calibrated, and if not, how?"""

from prerank.diagnosis.checking import check, check_pits
from prerank.diagnosis.comparison import Comparison, compare
from prerank.diagnosis.groups import GroupedCheck, grouped
from prerank.diagnosis.recommendation import Recommendation, recommend
from prerank.diagnosis.result import Check

__all__ = [
    "Check",
    "Comparison",
    "GroupedCheck",
    "Recommendation",
    "check",
    "check_pits",
    "compare",
    "grouped",
    "recommend",
]
