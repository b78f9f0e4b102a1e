"""Models, contexts and samplers of llama.cpp, each owned by one object that frees it.

What leaves this package are copies in numpy arrays, tokens and seconds. No pointer does.
"""
