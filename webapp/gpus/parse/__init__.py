"""What nvidia-smi prints, read into values: one file for each kind of output.

No parser raises on any text: a host's output may be cut, damaged or mixed with messages, and one bad field never costs
a card, one bad card never the others (promises.md 2, 9, 16). Process names are written by the people who run them; see
report.py for what that means.
"""
