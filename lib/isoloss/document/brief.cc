#include "isoloss/document/brief.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"

namespace isoloss::document {
namespace {

using Lines = std::vector<std::string>;

/// A part with this limit gets all the lines that it takes.
constexpr size_t kAll = std::numeric_limits<size_t>::max();

/// Raises a number of lines of 80 columns for a narrower terminal.
size_t Cap(size_t lines, const TextStyle& style) {
  constexpr size_t kFullWidth = 80;
  const auto width = static_cast<size_t>(style.width);
  return lines * std::max(kFullWidth, width) / width;
}

void Append(Lines more, Lines& lines) {
  std::ranges::move(more, std::back_inserter(lines));
}

/// Puts a name of at most ten characters before `text`, which is wrapped.
Lines Labelled(std::string_view name, const std::string& text, size_t most,
               const TextStyle& style) {
  constexpr size_t kIndent = 11;
  Lines lines = WrappedLines(Printable(text), kIndent, kIndent, most, style);
  if (lines.empty()) return lines;
  const std::string padded = fmt::format("{:<{}}", name, kIndent);
  lines[0] = Paint(padded, kDim, style) + lines[0];
  return lines;
}

// ---- the parts -------------------------------------------------------------

const char* ColorOf(Status status) {
  switch (status) {
    case Status::kPass:
      return kGreen;
    case Status::kInconclusive:
    case Status::kNoticed:
      return kYellow;
    case Status::kSkipped:
      return nullptr;
    case Status::kFailure:
    case Status::kError:
      break;
  }
  return kRed;
}

/// Returns an outcome such as "PASS" in the colour of its status.
std::string Painted(const std::string& outcome, Status status,
                    const TextStyle& style) {
  return Paint(outcome, ColorOf(status), style);
}

Lines Headline(const Result& result, const TextStyle& style) {
  constexpr size_t kMost = 7;  // names are short, so that all of it fits
  const size_t indent = result.outcome.size() + 2;
  Lines lines =
      WrappedLines(result.headline, indent, indent, Cap(kMost, style), style);
  lines[0] = fmt::format(
      "{}  {}", Painted(result.outcome, result.status, style), lines[0]);
  return lines;
}

/// Lists the checks that gate and did not pass. Checks that explain other ones
/// come first, then the severest one.
std::vector<const Check*> NotPassed(const Result& result) {
  std::vector<const Check*> checks;
  for (const Check& check : result.checks) {
    if (IsRed(check.status)) checks.push_back(&check);
  }
  std::ranges::stable_sort(checks, std::greater<>(), &Check::status);
  std::ranges::stable_partition(checks, &Check::explains);
  return checks;
}

/// Returns as many clauses of `text`, which end at semicolons, as fit in
/// `room` columns, or all of `text` if none does.
std::string FirstClauses(const std::string& text, size_t room) {
  if (text.size() <= room) return text;
  const size_t end = text.rfind("; ", room);
  return end == std::string::npos ? text : text.substr(0, end);
}

/// Returns "OUTCOME  title (L5 id): statement (evidence)" and what to do. Each
/// of the two takes at most `most` lines of 80 columns.
Lines Detail(const Check& check, size_t most, const TextStyle& style) {
  constexpr size_t kIndent = 6;
  std::string text = fmt::format("{} ({} {}): {}", check.title, check.group,
                                 check.name, check.statement);
  if (!check.evidence.empty()) text += fmt::format(" ({})", check.evidence);
  Lines lines = WrappedLines(Printable(text), 4 + check.outcome.size(), kIndent,
                             most, style);
  lines[0] = fmt::format("  {}  {}",
                         Painted(check.outcome, check.status, style), lines[0]);
  std::string next = check.next;
  if (!next.empty()) {
    next = FirstClauses("next: " + Printable(next),
                        static_cast<size_t>(style.width) - kIndent);
    Lines more = WrappedLines(next, kIndent, kIndent, Cap(most, style), style);
    more[0].insert(0, kIndent, ' ');
    Append(std::move(more), lines);
  }
  return lines;
}

/// Returns "L2 every element, rounding flips; L5 null arm" for checks that
/// have no lines of their own.
Lines Names(std::span<const Check* const> checks, size_t most,
            const TextStyle& style) {
  std::map<std::string, std::string> levels;
  std::map<std::pair<std::string, std::string>, int> times;
  for (const Check* check : checks) {
    const std::string& title = check->title;
    if (++times[{check->group, title}] > 1) continue;
    std::string& list = levels[check->group];
    list += fmt::format("{}{}", list.empty() ? "" : ", ", title);
  }
  std::string text;
  for (const auto& [level, list] : levels) {
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", level, list);
  }
  if (checks.empty()) return {};
  if (times.size() < checks.size()) {
    text += fmt::format("; {} checks in all", checks.size());
  }
  return Labelled("not passed", text, most, style);
}

/// Fits the checks into `most` lines. All are described, each as far as it
/// fits, or else some of the first, and the rest are named.
Lines Checks(const std::vector<const Check*>& checks, size_t most,
             const TextStyle& style) {
  constexpr size_t kInFull[] = {8, 6, 4};
  constexpr size_t kOfOthers = 4;  // what could be seen, and the like
  const auto details = [&](size_t count, size_t lines_each) {
    Lines lines;
    for (const Check* check : std::span(checks).first(count)) {
      Append(Detail(*check, lines_each, style), lines);
    }
    return lines;
  };
  for (const size_t lines_each : kInFull) {
    Lines lines = details(checks.size(), lines_each);
    if (lines.size() + kOfOthers <= most) return lines;
  }
  for (size_t shown = checks.size(); shown > 0; --shown) {
    Lines lines = details(shown, kInFull[2]);
    Append(Names(std::span(checks).subspan(shown), kAll, style), lines);
    if (lines.size() <= most) return lines;
  }
  return Names(checks, most, style);
}

/// Says "9 checks: log integrity (7), end of training (2)".
Lines Passed(const Result& result, const TextStyle& style) {
  int all = 0;
  int not_needed = 0;
  std::vector<std::pair<std::string, int>> groups;
  for (const Check& check : result.checks) {
    if (check.name == kGroupCheck) continue;
    if (!check.gates) ++not_needed;
    if (check.status != Status::kPass) continue;
    ++all;
    if (groups.empty() || groups.back().first != check.group_title) {
      groups.emplace_back(check.group_title, 0);
    }
    ++groups.back().second;
  }
  if (all + not_needed == 0) return {};
  std::vector<std::string> names;
  for (const auto& [title, count] : groups) {
    names.push_back(fmt::format("{} ({})", title, count));
  }
  std::string text =
      fmt::format("{} check{}{}{}", all, all == 1 ? "" : "s",
                  names.empty() ? "" : ": ", fmt::join(names, ", "));
  if (not_needed > 0) {
    text += fmt::format("; {} more {} not needed", not_needed,
                        not_needed == 1 ? "was" : "were");
  }
  return Labelled("passed", text, Cap(3, style), style);
}

/// Returns as many whole sentences as fit, and how many are left out.
Lines CouldSee(const Result& result, size_t most, const TextStyle& style) {
  const std::vector<std::string>& sentences = result.could_have_seen;
  Lines all;
  for (const std::string& sentence : sentences) {
    Append(Labelled(all.empty() ? "could see" : "", sentence, kAll, style),
           all);
  }
  if (all.size() <= most) return all;
  Lines lines;
  if (most == 0) return lines;
  size_t left_out = 0;
  for (const std::string& sentence : sentences) {
    Lines more =
        Labelled(lines.empty() ? "could see" : "", sentence, kAll, style);
    // The last line says how many sentences are left out.
    if (lines.size() + more.size() < most) {
      Append(std::move(more), lines);
    } else {
      ++left_out;
    }
  }
  Append(Labelled(lines.empty() ? "could see" : "",
                  fmt::format("({} more: --verbose)", left_out), kAll, style),
         lines);
  return lines;
}

/// Returns as many whole sentences of the first warnings as fit, and how many
/// warnings there are. A warning that is cut off may say the contrary of the
/// whole one.
Lines BriefWarnings(const Result& result, const TextStyle& style) {
  const size_t count = result.warnings.size();
  if (count == 0) return {};
  const char* name = count == 1 ? "warning" : "warnings";
  const size_t most = Cap(3, style);
  const std::string& first = result.warnings.front();
  for (size_t end = first.size(); end != std::string::npos && end > 0;) {
    std::string text = first.substr(0, end);
    if (count > 1 || end < first.size()) {
      text += count > 1 ? fmt::format(" ({} more: --verbose)", count - 1)
                        : " (more: --verbose)";
    }
    Lines lines = Labelled(name, text, kAll, style);
    if (lines.size() <= most) return lines;
    const size_t stop =
        end < 2 ? std::string::npos : first.rfind(". ", end - 2);
    end = stop == std::string::npos ? stop : stop + 1;
  }
  return Labelled(name, fmt::format("{}, which --verbose shows", count), most,
                  style);
}

Lines HoldsFor(const Result& result, const TextStyle& style) {
  if (result.holds_for.empty()) return {};
  constexpr std::string_view kBegin = "It holds for ";
  std::string text = result.holds_for.front();
  if (text.starts_with(kBegin)) text.erase(0, kBegin.size());
  return Labelled("holds for", text, Cap(4, style), style);
}

/// Cuts a long title of the difference, but keeps its end from " in %" on.
std::string FittingTitle(const std::string& title, const TextStyle& style) {
  const auto width = static_cast<size_t>(style.width);
  if (title.size() <= width) return title;
  const size_t names = title.rfind(" in %");
  const std::string end = title.substr(names);
  return Shortened(title.substr(0, names), width - end.size()) + end;
}

constexpr size_t kAroundChart = 3;  // title, axis and its labels
/// The number is odd so that one row stands for no difference.
constexpr int kFewestRows = 3;

/// Draws the picture in at most `most` lines. It draws none if they are too
/// few, or if there is nothing to draw.
Lines Drawn(const Result& result, size_t most, const TextStyle& style) {
  constexpr int kRows = 5;
  if (!result.picture || most < kAroundChart + kFewestRows) return {};
  Chart chart = *result.picture;
  chart.rows = most < kAroundChart + kRows ? kFewestRows : kRows;
  Lines drawn = DrawChart(chart, style);
  if (drawn.empty()) return {};
  Lines lines = {FittingTitle(chart.title, style)};
  Append(std::move(drawn), lines);
  return lines;
}

/// Returns "PASS  mxfp8 against bf16: REASONS (exit code 0)". The reasons and,
/// if need be, the names are cut so that they fit.
std::string BriefVerdict(const Result& result, const TextStyle& style) {
  const std::string code = fmt::format(" (exit code {})", result.exit_code);
  const size_t taken = result.outcome.size() + 2 + code.size();
  const size_t room = static_cast<size_t>(style.width) - taken;
  const std::string subject = result.subject + ": ";
  std::string reasons = result.decided_by;
  while (subject.size() + reasons.size() > room) {
    constexpr std::string_view kRest = ", ...";
    const size_t part =
        reasons.find_last_of(";,", reasons.size() - kRest.size() - 1);
    if (reasons.size() <= kRest.size() || part == std::string::npos) break;
    const bool lists = reasons[part] == ',';
    reasons.resize(part);
    if (lists) reasons += kRest;
  }
  return fmt::format("{}  {}{}", Painted(result.outcome, result.status, style),
                     Shortened(Printable(subject + reasons), room), code);
}

/// Renders a result in which everything is equal, after another such result.
std::string RenderEqual(const Result& result, const TextStyle& style) {
  Lines lines = Headline(result, style);
  lines.push_back(BriefVerdict(result, style));
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace

std::string RenderBrief(const Result& result, const TextStyle& style) {
  size_t left = Cap(kBriefLines, style);
  const auto take = [&left](Lines lines) {
    left -= std::min(left, lines.size());
    return lines;
  };
  // These parts must be there. The rest follows in the order of its weight, as
  // far as it fits.
  const Lines verdict = take({BriefVerdict(result, style)});
  const Lines headline = take(Headline(result, style));
  const Lines passed = take(Passed(result, style));
  const Lines warnings = take(BriefWarnings(result, style));
  const Lines holds = take(HoldsFor(result, style));
  // A line is left for how many sentences are left out.
  const Lines checks =
      take(Checks(NotPassed(result), left - std::min<size_t>(left, 1), style));
  // The smallest chart and the blank line above it take this number of lines.
  constexpr size_t kOfChart = 1 + kAroundChart + kFewestRows;
  const size_t least = std::min<size_t>(left, 4);
  const Lines seen = take(CouldSee(
      result, std::max(least, left - std::min(left, kOfChart)), style));
  const Lines chart = take(Drawn(result, left, style));

  Lines lines;
  const auto put = [&](const Lines& part, bool parted) {
    if (parted && !part.empty() && left > 0) {
      lines.emplace_back();
      --left;
    }
    Append(part, lines);
  };
  put(headline, false);
  put(chart, true);
  put(checks, true);
  put(passed, true);
  for (const Lines& part : {seen, holds, warnings}) put(part, false);
  put(verdict, true);
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

std::string RenderBriefs(std::span<const Result> results,
                         const TextStyle& style) {
  std::string text;
  bool shown = false;
  for (const Result& result : results) {
    if (!text.empty()) text += "\n";
    const bool equal = result.is_equal && result.status == Status::kPass;
    text += equal && shown ? RenderEqual(result, style)
                           : RenderBrief(result, style);
    shown = shown || equal;
  }
  return text;
}

}  // namespace isoloss::document
