// SPDX-License-Identifier: Apache-2.0
// Price and start of the lease in the form, while it is being filled in.

(function () {
  'use strict';

  var PAUSE_MS = 1200;
  var POLL_MS = 1000;
  var SLOW_MS = 30000;
  // Answers to an older request are ignored.
  var current = 0;
  var timer = null;

  function formOf(element) {
    return $(element).closest('form[data-secondary-quote]');
  }

  function show(form, nodes) {
    form.find('.secondary-quote').empty().append(nodes);
  }

  function paragraph(text) {
    return $('<p>').text(text);
  }

  function showOffer(form, offer) {
    var texts = form.find('.secondary-quote').data();
    var list = $('<dl class="dl-horizontal">');
    list.append($('<dt>').text(offer.accepted ? texts.start : texts.next),
                $('<dd class="secondary-offer-start">').text(offer.start));
    list.append($('<dt>').text(texts.price),
                $('<dd class="secondary-offer-price">').text(
                  offer.price + ' (' + offer.rate + ' ' + texts.rate + ')'));
    show(form, [paragraph(offer.accepted ? texts.accepted :
                          texts.rejected + ' ' + offer.reason), list]);
  }

  function wait(form, url, mine, began) {
    $.getJSON(url).done(function (answer) {
      if (mine !== current) {
        return;
      }
      if (answer.message) {
        show(form, paragraph(answer.message));
      } else if (answer.accepted !== undefined) {
        showOffer(form, answer);
      } else {
        if (Date.now() - began > SLOW_MS) {
          show(form, paragraph(form.find('.secondary-quote').data('slow')));
        }
        if (form.closest('body').length) {
          setTimeout(function () { wait(form, url, mine, began); }, POLL_MS);
        }
      }
    }).fail(function (response) { fail(form, mine, response); });
  }

  function fail(form, mine, response) {
    var expired = response.status === 401;
    if (mine === current) {
      form.find('.secondary-expired').prop('hidden', !expired);
      show(form, expired ? [] : paragraph(
        form.find('.secondary-quote').data('failed')));
    }
  }

  function label(form, name) {
    var found = form.find('[name="' + name + '"]').closest('.form-group')
      .find('label').first().text().trim();
    return found ? found + ': ' : '';
  }

  function ask(form) {
    var mine = current += 1;
    clearTimeout(timer);
    show(form, paragraph(form.find('.secondary-quote').data('waiting')));
    $.post(form.data('secondaryQuote'), form.serialize(), null, 'json')
      .done(function (answer) {
        if (mine !== current) {
          return;
        }
        if (answer.errors) {
          show(form, $.map(answer.errors, function (texts, name) {
            return paragraph(label(form, name) + texts.join(' ')).get();
          }));
        } else if (answer.message) {
          show(form, paragraph(answer.message));
        } else {
          wait(form, answer.offer, mine, Date.now());
        }
      })
      .fail(function (response) { fail(form, mine, response); });
  }

  $(document)
    .on('click', '.secondary-ask', function () { ask(formOf(this)); })
    .on('change', 'form[data-secondary-quote] :input', function () {
      var form = formOf(this);
      if (this.name === 'name' || this.name === 'user_data') {
        return;
      }
      current += 1;
      clearTimeout(timer);
      timer = setTimeout(function () { ask(form); }, PAUSE_MS);
    });
}());
