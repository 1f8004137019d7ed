"""Prompts for training a draft: requests of five kinds about topics, combined by templates.

Prompts for evaluation use every tenth topic, which no training prompt mentions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

HELD_OUT = 10
"""One topic in this many is for evaluation only."""


def _listed(text: str) -> list[str]:
    """Split a list at its semicolons."""
    return [" ".join(entry.split()) for entry in text.split(";")]


THINGS = _listed(
    """
volcanoes; photosynthesis; the history of tea; compound interest; solar panels; coral reefs;
the water cycle; public libraries; chess openings; sourdough bread; electric cars; black
holes; medieval castles; vaccines; recycling plastic; the Roman roads; meditation; house
plants; earthquakes; olive oil; the immune system; jazz music; time zones; migratory birds;
printing presses; running a marathon; tomato gardening; the stock market; wind turbines;
penguins; renting a flat; public speaking; learning Spanish; glaciers; the human heart;
mobile phones; wool; mosquitoes; car insurance; optical fibres; composting; tides; the
printing of money; sharks; working from home; bicycle repair; deserts; yoga; the Silk Road;
batteries; bridges; cheese making; job interviews; whales; weather forecasts; diabetes;
digital photography; the French Revolution; credit cards; swimming; soil; antibiotics;
lightning rods; paper folding; ants; high blood pressure; hiking in the mountains; choosing
a laptop; the moon landing; rainforests; budgeting for students; rice farming; the nervous
system; opera; dinosaurs; tax returns; stretching exercises; coffee plantations; satellites;
friendship; stress before exams; gravity; planting trees; vegetarian diets; elephants; the
ozone layer; writing a resume; learning to swim; allergies; hurricanes; chocolate;
passwords; chickens; genetics; ocean currents; the alphabet; glass; sleepwalking; museums;
planning a wedding; artificial intelligence; cancer research; democracy; magnets; buying a
used car; knitting; camels; social media; concrete; maps; the Great Wall of China; anxiety;
toothpaste; noise in cities; yeast; spiders; kitchen knives; planets; mathematics homework;
raising twins; the Amazon river; perfume; sign language; street markets; vitamins; ice
skating; honey badgers; fractions; steam engines; climate change; basketball; a balanced
breakfast; nuclear energy; dogs that bark at night; moving abroad
"""
)

SITUATIONS = _listed(
    """
a shy dragon; a clockmaker's daughter; an astronaut who misses home; two rival bakers; a
talking bicycle; a girl who collects shadows; a forgotten island; a librarian with a secret;
a snowman in July; a soldier's last letter; a mouse in a cathedral; a gardener who grows
stars; a lost suitcase; a boxer who writes poems; a haunted theatre; a river that stops
flowing; a wolf and a shepherd; a violin without strings; a lonely postman; a city under the
sea; an inventor of umbrellas; a chess game with a ghost; a bus driver on a rainy night; a
pirate who cannot swim; a blind painter; the last dinosaur; a nurse in a small village; a
wizard who forgets his spells; a thief with a kind heart; a school on the moon; an owl who
fears the dark; a tailor and a giant; a magic pair of shoes; a farmer who finds a map; a
mysterious neighbour; a time machine in a garage; twins at sea; an honest merchant; a frozen
lake and a promise; a queen in disguise; a musician on a train station; a tiger in the
library; an orphan and a falcon; a village without clocks; a doctor who travels by balloon;
the smallest knight; a broken mirror; a race across the desert; a mermaid and a fisherman; a
detective with a bad memory
"""
)

TASKS = _listed(
    """
sorts a list of numbers; finds all prime numbers up to n; merges two dictionaries; computes
the factorial of a number; converts Celsius to Fahrenheit; removes duplicates from a list;
finds the longest word in a sentence; counts the vowels in a string; flattens a nested list;
checks whether a year is a leap year; computes the Fibonacci sequence; finds the greatest
common divisor; implements binary search; rotates a matrix; validates an email address;
generates a random password; implements a stack; implements a queue with two stacks; counts
the lines of a file; downloads a web page; parses a date; draws a triangle of stars;
simulates a dice game; multiplies two matrices; transposes a table; computes the median;
finds the intersection of two sets; groups words by their first letter; prints a
multiplication table; builds a linked list; traverses a binary tree; inserts a node into a
tree; finds anagrams; encrypts text with a Caesar cipher; converts a number to binary;
converts Roman numerals; shuffles a deck of cards; solves a quadratic equation; caches
results of a function; measures the time of a function; reads JSON from a file; writes a log
file; sends a request to an API; filters even numbers; finds missing numbers; computes a
moving average; checks balanced brackets; plays tic-tac-toe; implements a timer; models a
car; models a library with books; models a shopping cart; models a student with grades;
finds the shortest path in a graph
"""
)

LANGUAGES = ["Python", "Python", "Python", "Java", "JavaScript", "C++", "C", "Go", "Rust", "Ruby"]

TEMPLATES = {
    "article": [
        "Write a short article about {thing}.",
        "Write a newspaper report about {thing}.",
        "Write three paragraphs about {thing} for a magazine.",
        "Write an informative text about {thing} for a general audience.",
        "Write a blog post about {thing}.",
        "Write a short essay about {thing}.",
    ],
    "chat": [
        "What is the most important thing to know about {thing}?",
        "Explain {thing} in simple words.",
        "Can you explain {thing} to a child?",
        "Give me five tips about {thing}.",
        "Why do people care about {thing}?",
        "What are common mistakes about {thing}?",
        "I want to learn more about {thing}. Where should I start?",
        "What are the advantages and disadvantages of {thing}?",
        "How did people think about {thing} a hundred years ago?",
        "Tell me something surprising about {thing}.",
        "My teacher asked me about {thing}. What should I answer?",
        "List three questions about {thing} and answer them.",
        "Write a polite email to a colleague about {thing}.",
        "What is the connection between {thing} and {other}?",
        "Compare {thing} with {other}.",
        "Which is more interesting, {thing} or {other}?",
        "Help me plan a lesson about {thing}.",
        "Is it true that everybody should know about {thing}?",
        "How does one begin with {thing}?",
        "I am worried about {thing}. What do you advise?",
    ],
    "code": [
        "Write a {language} function that {task}.",
        "Write a {language} program that {task}.",
        "Show me in {language} code that {task}.",
        "How do I write {language} code that {task}?",
        "Write a short {language} example that {task}, and explain it.",
        "I need a {language} class or function that {task}. Please add comments.",
    ],
    "story": [
        "Write a short story about {situation}.",
        "Tell me a story about {situation}.",
        "Write the first page of a novel about {situation}.",
        "Tell a bedtime story about {situation}.",
        "Write a sad story about {situation} and {thing}.",
        "Write a funny story about {situation} and {thing}.",
        "Write a story with a surprising end about {situation}.",
    ],
    "summary": [
        "Summarize the following text in two or three sentences.",
        "Please summarize the text below.",
        "Give a short summary of the following text.",
        "Summarize this text in two sentences.",
        "Write a brief summary of this report.",
        "What are the main points of the following text?",
    ],
}


def prompts(kind: str, count: int, rng: np.random.Generator, *, held_out: bool) -> list[str]:
    """Return `count` requests of a kind; those of the kind "summary" lack their text."""

    def one_of(choices: list[str]) -> str:
        return choices[int(rng.integers(len(choices)))].strip()

    def subject(subjects: list[str]) -> str:
        mine = [s for i, s in enumerate(subjects) if (i % HELD_OUT == 0) == held_out]
        return " ".join(one_of(mine).split())

    return [
        one_of(TEMPLATES[kind]).format(
            thing=subject(THINGS),
            other=subject(THINGS),
            situation=subject(SITUATIONS),
            task=subject(TASKS),
            language=one_of(LANGUAGES),
        )
        for _ in range(count)
    ]
