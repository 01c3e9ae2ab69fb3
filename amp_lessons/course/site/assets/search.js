// Sections that hold all the words, first those whose heading has them; before them the message of PyTorch's that the
// words are. They stand in the address.
(() => {
  "use strict";
  const MOST = 40;
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

  const search = (words, said) =>
    sections
      .map((each) => {
        if (said.has(each.to)) return { each, score: Infinity };
        const inAll = words.every((word) => each.inHeading.includes(word) || each.inText.includes(word));
        const headed = words.filter((word) => each.inHeading.includes(word)).length;
        const often = words.reduce((sum, word) => sum + Math.min(each.inText.split(word).length - 1, 5), 0);
        return { each, score: inAll ? 10 * headed + often : 0 };
      })
      .filter(({ score }) => score > 0)
      .sort((a, b) => (a.score === b.score ? 0 : b.score - a.score))
      .map(({ each }) => each);

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
    const words = bare(line).split(" ").filter(Boolean).slice(0, 12);
    const found = words.length ? search(words, saidBy(line)) : [];
    list.replaceChildren(...found.slice(0, MOST).map((section) => item(section, words)));
    const what = `${found.length} section${found.length === 1 ? "" : "s"}`;
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
