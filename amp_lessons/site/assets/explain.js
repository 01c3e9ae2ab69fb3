// Which of the known messages a text says; what it means stands on the page already, and is shown again on top.
(() => {
  "use strict";
  const said = document.getElementById("said");
  const meaning = document.getElementById("meaning");
  const known = window.ampMessages.map(([name, patterns]) => [name, patterns.map((each) => new RegExp(each))]);

  window.ampExplain = (text) => {
    const line = text.trim().split(/\s+/).join(" ");
    return known.find(([, patterns]) => patterns.some((pattern) => pattern.test(line)))?.[0] ?? null;
  };

  const section = (text) => {
    const code = /^\w+$/.test(text.trim()) && document.getElementById(`code-${text.trim()}`);
    const name = window.ampExplain(text);
    return code || (name && document.getElementById(`message-${name}`));
  };

  const explain = () => {
    meaning.replaceChildren();
    if (!said.value.trim()) return;
    const found = section(said.value);
    if (found) {
      const copy = found.cloneNode(true);
      copy.removeAttribute("id");
      meaning.append(...copy.childNodes);
      return;
    }
    const text = document.createElement("p");
    text.textContent =
      "This is not among the messages about mixed precision that are known here. Run the same with enabled=False " +
      "for autocast and for GradScaler: if it fails as before, mixed precision has no part in it.";
    meaning.append(text);
  };
  document.getElementById("explain").addEventListener("click", explain);
  said.addEventListener("paste", () => setTimeout(explain));
})();
