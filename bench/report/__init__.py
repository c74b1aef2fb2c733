"""``voicegate bench report``: runs side by side on one page, with the failures to listen to. From their folders alone.

``runs`` reads, ``tables_*`` and ``plot_*`` each make one kind of block, ``contents`` puts them in order, ``html_page``
and ``markdown_page`` write them down. Nothing here measures: every rate comes from ``bench.score``.
"""
