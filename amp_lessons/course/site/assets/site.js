// What every page does: light and dark, what this browser keeps, folds that are linked to, boxes that scroll.
(() => {
  "use strict";
  const PREFIX = "amp-lessons.";
  const root = document.documentElement;

  // A browser may refuse to keep anything, and what it kept may be anything: both are answered with nothing.
  const keeping = {
    read(name) {
      try {
        const value = JSON.parse(localStorage.getItem(PREFIX + name));
        return value && typeof value === "object" && !Array.isArray(value) ? value : {};
      } catch {
        return {};
      }
    },
    write(name, value) {
      try {
        localStorage.setItem(PREFIX + name, JSON.stringify(value));
      } catch {
        return false;
      }
      say();
      return true;
    },
    names() {
      try {
        return Object.keys(localStorage).filter((name) => name.startsWith(PREFIX));
      } catch {
        return [];
      }
    },
    forget() {
      for (const name of keeping.names()) localStorage.removeItem(name);
      location.reload();
    },
  };
  window.ampKeeping = keeping;

  if (matchMedia("(min-width: 1100px)").matches) {
    document.querySelector(".contents")?.setAttribute("open", ""); // it stands at the side, and covers nothing
  }

  // The list of lessons says of each how far its questions are answered.
  const progress = keeping.read("progress");
  for (const link of document.querySelectorAll(".lessons a")) {
    const [done, all] = [progress[link.getAttribute("href")]].flat().map(Number);
    if (!(done > 0 && all > 0)) continue;
    link.after(Object.assign(document.createElement("small"), {
      className: "begun",
      textContent: done >= all ? "✓ all questions answered" : `${done} of ${all} questions answered`,
    }));
  }

  // Of the contents the last heading in the upper part of the window is where a reader is, or the one that was chosen.
  const entries = [...document.querySelectorAll(".contents a")].map((link) => [
    link, document.getElementById(decodeURIComponent(link.hash.slice(1))),
  ]);
  const mark = () => {
    const top = (heading) => heading.getBoundingClientRect().top;
    const reached = entries.filter(([, heading]) => top(heading) < 0.4 * innerHeight);
    const chosen = reached.find(([link, heading]) => link.hash === location.hash && top(heading) >= 0);
    for (const [link] of entries) link.removeAttribute("aria-current");
    (chosen ?? reached.at(-1) ?? entries[0])?.[0].setAttribute("aria-current", "true");
  };
  addEventListener("scroll", mark, { passive: true });

  const kept = document.getElementById("kept");
  const forget = document.getElementById("forget");
  const say = () => {
    const some = keeping.names().length > 0;
    kept.textContent = some
      ? "Your answers and choices are kept in this browser, on this machine, and nowhere else."
      : "What you answer will be kept in this browser, on this machine, and nowhere else.";
    forget.hidden = !some;
  };
  forget.addEventListener("click", keeping.forget);
  say();

  const theme = document.getElementById("theme");
  const isDark = () => root.getAttribute("data-jp-theme-light") === "false";
  const name = () => (theme.textContent = isDark() ? "Light" : "Dark");
  theme.addEventListener("click", () => {
    root.setAttribute("data-jp-theme-light", String(isDark()));
    try {
      localStorage.setItem(PREFIX + "theme", isDark() ? "dark" : "light");
    } catch {}
    name();
    say();
  });
  name();

  // A link into a fold opens it, and one to a cell what waits there.
  const unfold = () => {
    let id = "";
    try {
      id = decodeURIComponent(location.hash.slice(1));
    } catch {}
    const target = document.getElementById(id);
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    for (const each of target?.querySelectorAll("details.outcome") ?? []) each.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  // A button at each block of code, and at none of what it printed. What is made later asks for its own.
  window.ampCopyable = (within) => {
    if (!navigator.clipboard) return;
    for (const code of within.querySelectorAll("pre:not(.printed)")) {
      const box = Object.assign(document.createElement("div"), { className: "copyable" });
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy" });
      const say = (words) => {
        button.textContent = words;
        setTimeout(() => (button.textContent = "Copy"), 1500);
      };
      button.addEventListener("click", () =>
        navigator.clipboard.writeText(code.textContent.trimEnd()).then(() => say("Copied"), () => say("Not copied")),
      );
      const block = code.closest(".highlight") ?? code;
      block.replaceWith(box);
      box.append(block, button);
    }
  };
  window.ampCopyable(document);

  // Tab stops at a box only where there is more of it than the page is wide.
  const stops = (event) => {
    if (event && event.key !== "Tab") return;
    for (const box of document.querySelectorAll(".amp-scroll, pre")) {
      box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
    }
  };
  addEventListener("keydown", stops, true);

  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details.deeper, details.outcome")) each.open = true;
  });
})();
