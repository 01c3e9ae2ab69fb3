// Which of the known messages a text says; what it means stands on the page already, and is shown again on top.
(() => {
  "use strict";
  const said = document.getElementById("said");
  const meaning = document.getElementById("meaning");
  const compiled = (patterns) => patterns.map((each) => new RegExp(...each));
  const known = window.ampMessages.map(([name, patterns, unless, way]) => [
    name, compiled(patterns), compiled(unless), way,
  ]);

  // What was pasted, in one line: without colours, ranks, frames, and quotes of a word processor.
  const NAMED = { lt: "<", gt: ">", amp: "&", quot: '"', apos: "'", nbsp: " " };
  const plain = (text) => {
    const [pasted, quotes] = window.ampPasted;
    const unescaped = text.replace(/&(?:#(\d+)|#x([\da-f]+)|(lt|gt|amp|quot|apos|nbsp));/gi, (_, ten, hex, name) =>
      name ? NAMED[name.toLowerCase()] : String.fromCodePoint(ten ? +ten : parseInt(hex, 16)),
    );
    const typed = [...unescaped].map((each) => quotes[each] ?? each).join("");
    return typed.replace(new RegExp(...pasted), " ").trim().split(/\s+/).join(" ");
  };

  // Of a log that says several things, the last error counts, or the last warning: as `amp-lessons explain` does it.
  const match = (text) => {
    const line = plain(text);
    let best = null;
    for (const [name, patterns, unless, way] of known) {
      if (unless.some((each) => line.search(each) >= 0)) continue;
      const places = patterns.flatMap((each) => [...line.matchAll(each)]);
      if (!places.length) continue;
      const found = places.reduce((last, each) => (each.index > last.index ? each : last));
      const last = found.index;
      const at = last - way;
      const kinds = line.slice(0, last).match(/\w(Error|Exception|Warning):/g);
      const error = !kinds?.at(-1).endsWith("Warning:");
      if (!best || error > best.error || (error === best.error && at > best.at)) best = { name, error, at, said: found[0] };
    }
    return best;
  };
  window.ampExplain = (text) => match(text)?.name ?? null;

  // Return what is shown: of a message under the words that were found, which may be another of its wordings.
  const shown = (text) => {
    const code = /^\w+$/.test(text.trim()) && document.getElementById(`code-${text.trim()}`);
    const found = code ? null : match(text);
    const copy = (code || (found && document.getElementById(`message-${found.name}`)))?.cloneNode(true);
    if (copy && found) copy.querySelector("h2").firstChild.data = `${found.said} `;
    return copy;
  };

  const explain = () => {
    meaning.replaceChildren();
    if (!said.value.trim()) return;
    const found = shown(said.value);
    if (found) {
      meaning.append(...found.childNodes);
      return;
    }
    meaning.innerHTML =
      "<p>This is not among the messages about mixed precision that are known here. Run the same with " +
      "<code>enabled=False</code> for <code>autocast</code> and for <code>GradScaler</code>. If it fails as before, " +
      "mixed precision has no part in it; if it does not, print the dtype of every tensor in the last line of the " +
      "traceback that is your own.</p>" +
      (/\b(nan|inf)/i.test(said.value)
        ? '<p>Is a loss or a gradient NaN or inf? <a href="symptoms.html?walk=0">Walk from the symptom to its cause.</a></p>'
        : '<p>Or go <a href="symptoms.html">from a symptom to its cause</a>.</p>');
  };
  document.getElementById("explain").addEventListener("click", explain);
  said.addEventListener("paste", () => setTimeout(explain));
  said.addEventListener("keydown", (event) => event.key === "Enter" && event.ctrlKey && explain());
  addEventListener("pageshow", explain); // a browser that goes back brings the text again, and not the answer
})();
