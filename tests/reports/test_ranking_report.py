"""The report on search shows how far relevant documents are from the top, and what is ranked before them."""

from bert_jax.reports.rankings import RankedQuery, ranked_queries, search_sections

JUDGEMENTS = {"q1": {"a": 1, "b": 2}, "q2": {"c": 1, "d": 0}, "q3": {"e": 1}, "q4": {"a": 0}, "q5": {"gone": 1}}
RANKINGS = {"q1": ["b", "a"], "q2": ["d", "a", "<x>", "b", "c"], "q3": ["a", "b"], "q4": ["a"], "q5": ["b"]}
SCORES = {"q1": 1.0, "q2": 0.4, "q3": 0.0, "q4": 0.0, "q5": 0.0}
TEXTS = {"a": "text a", "b": "text b", "c": "text c", "d": "<b>text d</b>", "e": "text e", "<x>": "text x"}


def test_the_worst_queries_come_first():
    ranked = ranked_queries(JUDGEMENTS, RANKINGS, SCORES)
    assert [each.query for each in ranked] == ["q3", "q5", "q2", "q1"]  # q4 has no relevant document
    assert ranked[0] == RankedQuery("q3", ["a", "b"], "e", None, 0.0)
    assert [(each.relevant, each.rank) for each in ranked[1:]] == [("gone", None), ("c", 5), ("b", 1)]


def test_the_page_shows_what_was_ranked_before_the_relevant_document():
    read = []

    def texts(ids):
        read.append(ids)
        return {name: text for name, text in TEXTS.items() if name in ids}

    queries = {name: f"question {name}" for name in RANKINGS}
    ranks, failed = search_sections(ranked_queries(JUDGEMENTS, RANKINGS, SCORES), "ndcg@10", queries, texts)
    assert read == [{"e", "a", "b", "gone", "c", "d", "<x>"}]
    for row in ('<td>1</td><td class="n">1</td>', '<td>4 to 10</td><td class="n">1</td>',
                '<td>not ranked</td><td class="n">2</td><td class="n">0.5000</td>'):  # fmt: skip
        assert row in ranks.body
    assert "3 of 4 queries" in failed.body and "question q1" not in failed.body
    assert "gone: not in the corpus" in failed.body and "&lt;x&gt;: text x" in failed.body
    assert "d: &lt;b&gt;text d&lt;/b&gt;" in failed.body and "b: text b" in failed.body
    row = failed.body[failed.body.index("question q2") :]
    assert row.index("c: text c") < row.index('<td class="n">5</td>') < row.index("d: ") < row.index("a: text a")


def test_nothing_fails_where_all_scores_are_one():
    _, failed = search_sections([RankedQuery("q1", ["b"], "b", 1, 1.0)], "mrr@10", {"q1": "a"}, lambda ids: {})
    assert "None: mrr@10 of each query is 1." in failed.body
