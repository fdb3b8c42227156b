"""The experiment ``local``: latency, throughput and cost on one host."""
