// SPDX-License-Identifier: Apache-2.0
// Parts of a page that are read again from time to time, until a user stops
// that: <div data-secondary-update="SECONDS" id="...">.

(function () {
  'use strict';

  var stopped = false;

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
      if (found.length && !busy(part)) {
        $(part).html(found.html());
      }
    }).always(function () { again(part); });
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
