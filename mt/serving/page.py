"""The page at ``/``: type a sentence, and read its translation while you type.

It is one constant document without any user text: translations arrive as JSON and are put into the page as
text nodes, never as markup. The style is in `page.css`, the behaviour in `page.js` and `words.js`.
"""

from pathlib import Path

_FOLDER = Path(__file__).parent
_SCRIPT = (_FOLDER.parent / "words.js").read_text("utf-8") + (_FOLDER / "page.js").read_text("utf-8")
_STYLE = (_FOLDER / "page.css").read_text(encoding="utf-8")

PAGE = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Translate</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Translate <small id="model"></small></h1>
<noscript>This page needs JavaScript.</noscript>
<p id="choice" hidden><label for="run">Languages</label> <select id="run"></select></p>
<p id="key" hidden><label for="token">Token of this service</label>
<input id="token" autocomplete="off" autocapitalize="none" spellcheck="false"></p>
<div class="sides">
<section>
<label for="text" id="src">Text</label>
<textarea id="text" rows="4" dir="auto" autofocus placeholder="Type a sentence"></textarea>
</section>
<section aria-labelledby="tgt">
<h2 id="tgt">Translation</h2>
<output id="translation" for="text" dir="auto" aria-live="polite"></output>
</section>
</div>
<p id="status" role="status"></p>
<section id="others" hidden>
<h2>Alternatives</h2>
<ol id="alternatives"></ol>
</section>
<section id="words" hidden>
<h2>Word alignment</h2>
<div id="pair"><div id="source" class="words" role="list" aria-label="Words of the text"></div>
<div id="target" class="words" role="list" aria-label="Words of the translation"></div>
<svg id="lines" aria-hidden="true"></svg></div>
<p id="links" aria-live="polite"></p>
</section>
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""
