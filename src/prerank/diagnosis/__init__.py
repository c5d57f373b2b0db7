"""What a forecaster calls: is my joint forecast calibrated, and if not, how?"""

from prerank.diagnosis.check import Check, check, check_pits

__all__ = ["Check", "check", "check_pits"]
