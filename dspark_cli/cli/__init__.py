"""The command line: options to frozen choices, choices to calls, results to renderers."""
