// The tree of symptoms: press what you see, until a cause is named. The address says which answers were given.
(() => {
  "use strict";
  const box = document.getElementById("tree");
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // Of what stands in an address, only places of answers that there are count.
  const walked = () => {
    const given = new URLSearchParams(location.search).get("walk") ?? "";
    const places = [];
    let at = window.ampSymptoms;
    for (const place of given.split(".").filter((each) => /^\d{1,2}$/.test(each)).map(Number)) {
      if (!at.answers?.[place]) break;
      places.push(place);
      at = at.answers[place][1];
    }
    return places;
  };

  const go = (places) => {
    const query = places.length ? `?walk=${places.join(".")}` : location.pathname;
    try {
      history.pushState(null, "", query);
    } catch {}
    show(places, true);
  };

  const show = (places, focused) => {
    let at = window.ampSymptoms;
    box.replaceChildren();
    for (const place of places) {
      const line = make("p", "walked", `${at.asks} `);
      line.append(make("em", "", at.answers[place][0]));
      box.append(line);
      at = at.answers[place][1];
    }
    if (at.answers) {
      box.append(make("p", "asked", at.asks));
      at.answers.forEach(([text], place) => {
        const button = make("button", "amp-choice jupyter-button", text);
        button.type = "button";
        button.addEventListener("click", () => go([...places, place]));
        box.append(button);
      });
      if (at.aside) box.append(make("p", "how", at.aside));
    } else {
      const end = make("div", "end");
      end.tabIndex = -1; // the cause is what is read next
      end.innerHTML = `<p class="asked">${at.cause}</p><p>${at.cure}</p><p>Read on in ${at.lesson}. To see whether it is so:</p>${at.code}`;
      box.append(end);
      window.ampCopyable(end);
    }
    const ways = make("p", "");
    for (const [text, to] of [["Back", places.slice(0, -1)], ["Start again", []]]) {
      const button = make("button", "", text);
      button.type = "button";
      button.disabled = places.length === 0;
      button.addEventListener("click", () => go(to));
      ways.append(button, " ");
    }
    box.append(ways);
    if (focused) box.querySelector(".amp-choice, .end").focus();
  };
  addEventListener("popstate", () => show(walked(), false));
  show(walked(), false);
})();
