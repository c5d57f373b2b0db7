"""What a forecaster calls: is my joint forecast calibrated, and if not, how?"""

from prerank.diagnosis.checking import check, check_pits
from prerank.diagnosis.result import Check

__all__ = ["Check", "check", "check_pits"]
