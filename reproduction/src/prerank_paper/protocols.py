"""The two protocols of the study, by name."""

EXACT, AS_PUBLISHED = "exact", "as published"
