// Sections that hold all the words, or else most of them, first those whose heading has them; before them the message
// of PyTorch's that the words are. They stand in the address.
(() => {
  "use strict";
  const MOST = 40;
  const NOTHING = "No section: look at Errors or at Symptoms, then";
  const field = document.getElementById("words");
  const count = document.getElementById("count");
  const list = document.getElementById("found");
  const bare = (text) => text.toLowerCase().replaceAll("-", ""); // "warmup" is "warm-up"
  const sections = window.ampSections.map(([to, page, heading, text]) => ({
    to, page, heading, text, inHeading: bare(`${page} ${heading}`), inText: bare(text),
  }));

  const messages = window.ampMessages.map(([name, patterns]) => ({
    to: `explain.html#message-${name}`,
    patterns: patterns.map(([source, flags]) => new RegExp(source, flags.replace("g", ""))),
  }));
  const saidBy = (line) =>
    new Set(messages.filter(({ patterns }) => patterns.some((each) => each.test(line))).map(({ to }) => to));

  const SMALL = new Set("a an and are do does for how i in is it my of on or the to was what why".split(" "));
  const wordsOf = (line) => {
    const words = bare(line.replace(/^[\w.]*(Error|Exception|Warning): /, "")).split(" ").filter(Boolean);
    const telling = words.filter((word) => !SMALL.has(word));
    return (telling.length ? telling : words).slice(0, 12);
  };

  const search = (words, said) => {
    const scored = sections.map((each) => {
      const held = words.filter((word) => each.inHeading.includes(word) || each.inText.includes(word)).length;
      const headed = words.filter((word) => each.inHeading.includes(word)).length;
      const often = words.reduce((sum, word) => sum + Math.min(each.inText.split(word).length - 1, 5), 0);
      return { each, held, score: 10 * headed + often, isMessage: said.has(each.to) };
    });
    const most = Math.max(...scored.map(({ held, isMessage }) => (isMessage ? 0 : held)));
    const found = scored
      .filter(({ held, score, isMessage }) => isMessage || (score > 0 && held === most))
      .sort((a, b) => b.isMessage - a.isMessage || b.score - a.score);
    return { most, found: found.map(({ each }) => each) };
  };

  const excerpt = ({ text, inText }, words) => {
    const at = Math.max(0, Math.min(...words.map((word) => inText.indexOf(word)).filter((place) => place >= 0), 1e9));
    const from = at < 1e9 ? Math.max(0, at - 60) : 0;
    return `${from ? "… " : ""}${text.slice(from, from + 200)}${from + 200 < text.length ? " …" : ""}`;
  };

  const item = (section, words) => {
    const made = document.createElement("li");
    const link = document.createElement("a");
    const told = document.createElement("p");
    link.href = section.to;
    link.textContent = section.heading === section.page ? section.page : `${section.page}: ${section.heading}`;
    told.textContent = excerpt(section, words);
    made.append(link, told);
    return made;
  };

  const show = () => {
    const line = field.value.trim().split(/\s+/).join(" ");
    const words = wordsOf(line);
    const { most, found } = words.length ? search(words, saidBy(line)) : { most: 0, found: [] };
    list.replaceChildren(...found.slice(0, MOST).map((section) => item(section, words)));
    const some = most < words.length ? ` with ${most} of these ${words.length} words` : "";
    const what = found.length ? `${found.length} section${found.length === 1 ? "" : "s"}${some}` : NOTHING;
    count.textContent = words.length ? (found.length > MOST ? `${what}, of which the first ${MOST}:` : `${what}.`) : "";
  };

  field.value = (new URLSearchParams(location.search).get("q") ?? "").slice(0, 200);
  field.addEventListener("input", () => {
    try {
      history.replaceState(null, "", field.value ? `?q=${encodeURIComponent(field.value)}` : location.pathname);
    } catch {}
    show();
  });
  show();
  field.focus();
})();
