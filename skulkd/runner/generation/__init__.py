"""The step loop: scheduling, batching, prefill, decoding, sampling."""
