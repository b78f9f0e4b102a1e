"""Smaller files of the same model, by llama.cpp's own quantiser.

What is asked for becomes an order (``order``), which is refused or carried out by a process of its
own (``process``, ``worker``); what came of it is read from the file that was written (``report``).
"""
