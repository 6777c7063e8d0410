"""Twenty pairs of sentences: the first ten mean the same, the others have nothing in common."""

from __future__ import annotations

PARAPHRASES = [
    ("The cat sleeps on the sofa.", "A cat is napping on the couch."),
    ("He bought a new car yesterday.", "Yesterday he purchased a new automobile."),
    ("The meeting was moved to Friday.", "They rescheduled the meeting for Friday."),
    ("It is raining heavily outside.", "Outside, the rain is pouring down."),
    ("She plays the piano very well.", "She is an excellent pianist."),
    ("The server does not answer.", "There is no response from the server."),
    ("How do I reset my password?", "What are the steps to change a forgotten password?"),
    ("The children are playing in the park.", "Kids play at the park."),
    ("The price of oil went up.", "Oil has become more expensive."),
    ("I am learning to cook.", "I'm taking up cooking."),
]
STRANGERS = [
    ("The cat sleeps on the sofa.", "The price of oil went up."),
    ("He bought a new car yesterday.", "She plays the piano very well."),
    ("The meeting was moved to Friday.", "A volcano erupted in Iceland."),
    ("It is raining heavily outside.", "How do I reset my password?"),
    ("Quantum computers use qubits.", "Grandmother baked an apple pie."),
    ("The server does not answer.", "Roses need plenty of sunlight."),
    ("The train leaves at noon.", "Photosynthesis happens in leaves of green plants."),
    ("The children are playing in the park.", "Interest rates rose by half a percent."),
    ("I am learning to cook.", "The bridge was closed for repairs."),
    ("This sentence is short.", "Penguins walk a hundred kilometres over the ice to breed, "
     "and the whole colony keeps warm by taking turns in the middle of the crowd."),
]  # fmt: skip
PAIRS = PARAPHRASES + STRANGERS
