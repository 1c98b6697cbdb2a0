// SPDX-License-Identifier: Apache-2.0
// Parts of a page that are read again from time to time, until a user stops
// that: <div data-secondary-update="SECONDS" id="...">.

(function () {
  'use strict';

  var stopped = false;
  var read = new Date();

  function busy(part) {
    return stopped || document.hidden ||
      $.contains(part, document.activeElement);
  }

  function update(part) {
    if (busy(part)) {
      again(part);
      return;
    }
    $.get(window.location.href).done(function (page) {
      var found = $('<div>').append($.parseHTML(page)).find('#' + part.id);
      if (!found.length) {
        warn(true);
      } else if (!busy(part)) {
        $(part).html(found.html());
        warn(false);
      }
    }).fail(function () { warn(true); })
      .always(function () { again(part); });
  }

  // A page that is not read any more must not look like the present.
  function warn(old) {
    var note = $('.secondary-old');
    if (old && note.prop('hidden')) {
      note.text(note.data('text') + ' ' + read.toLocaleTimeString());
    } else if (!old) {
      read = new Date();
    }
    note.prop('hidden', !old);
  }

  function again(part) {
    if ($.contains(document, part)) {
      setTimeout(function () { update(part); },
                 1000 * $(part).data('secondaryUpdate'));
    }
  }

  $(document).on('click', '.secondary-stop', function () {
    stopped = !stopped;
    $(this).attr('aria-pressed', String(stopped));
  });

  $(function () {
    $('[data-secondary-update]').each(function () { again(this); });
  });
}());
