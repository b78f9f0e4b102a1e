"""Everything that people and programs read: it sees events and numbers, never a model.

stdout belongs to the answer, stderr to everything else. Text of models, files and users never
passes through rich's markup.
"""
