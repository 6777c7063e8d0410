"""Where settings come from and where files live. Shared by both programs; knows no network."""
