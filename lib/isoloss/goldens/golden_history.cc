#include "isoloss/goldens/golden_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/config/reader.h"
#include "isoloss/config/writer.h"

namespace isoloss::goldens {

template <typename Fields>
void Visit(Fields& fields, GoldenChange& change) {
  fields.Text("name", change.golden);
  fields.Text("before", change.before);
  fields.Text("after", change.after);
  fields.Text("verdict", change.verdict);
}

/// The chain is not part of the body, since it is a digest of the body.
template <typename Fields>
void VisitBody(Fields& fields, HistoryEntry& entry) {
  fields.Text("tool", entry.tool);
  fields.Text("commit", entry.commit);
  fields.Text("reason", entry.reason);
  fields.Texts("accepted", entry.accepted);
  fields.Tables("golden", entry.changes);
}

template <typename Fields>
void Visit(Fields& fields, HistoryEntry& entry) {
  fields.Text("chain", entry.chain);
  VisitBody(fields, entry);
}

namespace {

constexpr std::string_view kHead =
    "# Why the goldens of this folder are what they are, oldest first. Written "
    "by\n# `isoloss golden update`; each chain is a digest of its entry and of "
    "all before.\n";

constexpr std::string_view kRemedy =
    "`isoloss golden update` writes this file: restore it.";

std::string ChainOf(HistoryEntry entry, const std::string& previous) {
  config::Writer body("entry");
  VisitBody(body, entry);
  return DigestToHex(DigestOf(previous + "\n" + body.text()));
}

}  // namespace

bool HistoryEntry::IsDraft() const {
  return commit == "unknown" || commit.ends_with("-dirty");
}

History History::Read(const std::filesystem::path& path) {
  const std::string file = path.string();
  const std::string text = ReadTextFile(
      path, "Make the goldens with `isoloss golden update FOLDER --new`.");
  History history;
  const config::Document document(text, file, kRemedy);
  config::Reader fields(document);
  fields.Tables("entry", history.entries_);
  fields.RejectUnknown();
  std::string previous;
  for (size_t i = 0; i < history.entries_.size(); ++i) {
    const HistoryEntry& entry = history.entries_[i];
    const std::string chain = ChainOf(entry, previous);
    if (entry.chain != chain) {
      ThrowError(ErrorKind::kFormat,
                 "{}: entry {} (\"{}\") has chain {}, but its text and those "
                 "before it give {}. It was changed by hand: restore it.",
                 file, i + 1, entry.reason, entry.chain, chain);
    }
    previous = chain;
  }
  if (history.Text() != text) {
    ThrowError(ErrorKind::kFormat,
               "{}: it holds something that `isoloss golden update` does not "
               "write. It was changed by hand: restore it.",
               file);
  }
  return history;
}

std::string History::Text() const {
  config::Writer writer;
  writer.Tables("entry", entries_);
  return fmt::format("{}\n{}", kHead, writer.text());
}

void History::Append(HistoryEntry entry) {
  entry.chain = ChainOf(entry, entries_.empty() ? "" : entries_.back().chain);
  entries_.push_back(std::move(entry));
}

const HistoryEntry* History::LastOf(const std::string& golden) const {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (std::ranges::any_of(entry->changes, [&](const GoldenChange& change) {
          return change.golden == golden;
        })) {
      return &*entry;
    }
  }
  return nullptr;
}

std::string History::ContentOf(const std::string& golden) const {
  const HistoryEntry* entry = LastOf(golden);
  if (entry == nullptr) return "";
  return std::ranges::find(entry->changes, golden, &GoldenChange::golden)
      ->after;
}

std::vector<std::string> History::Goldens() const {
  std::set<std::string> names;
  for (const HistoryEntry& entry : entries_) {
    for (const GoldenChange& change : entry.changes) {
      if (!ContentOf(change.golden).empty()) names.insert(change.golden);
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace isoloss::goldens
