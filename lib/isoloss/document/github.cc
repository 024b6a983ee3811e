#include "isoloss/document/github.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"

namespace isoloss::document {
namespace {

/// An annotation is cut to this size. The runner takes at most 64 KiB.
constexpr size_t kMostAnnotationBytes = 4000;

/// Escapes text for a workflow command, line ends included. In a `property` a
/// comma or colon would end the text, so they are escaped, too.
std::string Data(std::string_view text, bool property) {
  std::string data;
  for (const char c : PrintableLines(text)) {
    if (c == '%' || c == '\n' || (property && (c == ':' || c == ','))) {
      data += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      data += c;
    }
  }
  return data;
}

std::string Annotation(const Result& result, const Check& one) {
  const std::string title = fmt::format(
      "isoloss: {}: {} ({})", result.name,
      one.title.empty() ? one.name : one.title, StatusName(one.status));
  std::string message = one.statement;
  for (const std::string& finding : one.findings) message += "\n" + finding;
  if (!one.next.empty()) message += "\nnext: " + one.next;
  return fmt::format(
      "::{} title={}{}::{}\n", IsRed(one.status) ? "error" : "warning",
      Data(Shortened(title, kMostAnnotationBytes), true),
      result.file.empty()
          ? ""
          : fmt::format(",file={},line=1", Data(result.file, true)),
      Data(Shortened(std::move(message), kMostAnnotationBytes), false));
}

}  // namespace

std::string RenderGithubAnnotations(const Report& report) {
  struct Found {
    const Result* result;
    Check one;
  };
  std::vector<Found> found;
  for (const Result& result : report.results) {
    for (Check& one : FindingsOf(result)) {
      found.push_back({&result, std::move(one)});
    }
  }
  std::ranges::stable_sort(found, std::greater(), [](const Found& finding) {
    return finding.one.status;
  });
  std::string text;
  for (size_t i = 0; i < std::min(found.size(), kMostAnnotations); ++i) {
    text += Annotation(*found[i].result, found[i].one);
  }
  return text;
}

std::string GithubStop(std::string_view token) {
  return fmt::format("::stop-commands::{}\n", token);
}

std::string GithubResume(std::string_view token) {
  return fmt::format("::{}::\n", token);
}

}  // namespace isoloss::document
