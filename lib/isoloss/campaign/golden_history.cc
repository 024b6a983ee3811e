#include "isoloss/campaign/golden_history.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/base/toml_text.h"

namespace isoloss::campaign {
namespace {

constexpr std::string_view kHead =
    "# Why the goldens of this folder are what they are, oldest first. Written "
    "by\n# `isoloss golden update`; each chain is a digest of its entry and of "
    "all before.\n";

/// A basic TOML string. Control characters never get here.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string ListText(const std::vector<std::string>& values) {
  std::vector<std::string> quoted;
  for (const std::string& value : values) quoted.push_back(Quoted(value));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

/// Everything but the chain.
std::string BodyOf(const HistoryEntry& entry) {
  std::string text =
      fmt::format("tool = {}\ncommit = {}\nreason = {}\naccepted = {}\n",
                  Quoted(entry.tool), Quoted(entry.commit),
                  Quoted(entry.reason), ListText(entry.accepted));
  for (const GoldenChange& change : entry.changes) {
    text += fmt::format(
        "[[entry.golden]]\nname = {}\nbefore = {}\nafter = {}\nverdict = {}\n",
        Quoted(change.golden), Quoted(change.before), Quoted(change.after),
        Quoted(change.verdict));
  }
  return text;
}

std::string ChainOf(const HistoryEntry& entry, const std::string& previous) {
  return DigestToHex(DigestOf(previous + "\n" + BodyOf(entry)));
}

/// Reads tables whose keys are strings and nothing else.
class TableReader {
 public:
  TableReader(const toml::table& table, const std::string& file)
      : table_(table), file_(file) {}

  std::string Text(std::string_view key) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr || !node->is_string()) Reject(key, "a string");
    return **node->as_string();
  }
  const toml::array& Array(std::string_view key) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr || !node->is_array()) Reject(key, "an array");
    return *node->as_array();
  }

 private:
  [[noreturn]] void Reject(std::string_view key, const char* what) const {
    ThrowError(ErrorKind::kConfig,
               "{}:{}: `{}` must be {}. The file is written by `isoloss golden "
               "update`: restore it.",
               file_, table_.source().begin.line, key, what);
  }

  const toml::table& table_;
  const std::string& file_;
};

HistoryEntry ParseEntry(const toml::table& table, const std::string& file) {
  const TableReader reader(table, file);
  HistoryEntry entry;
  entry.tool = reader.Text("tool");
  entry.commit = reader.Text("commit");
  entry.reason = reader.Text("reason");
  entry.chain = reader.Text("chain");
  for (const toml::node& name : reader.Array("accepted")) {
    entry.accepted.push_back(name.value_or(std::string()));
  }
  for (const toml::node& node : reader.Array("golden")) {
    const toml::table* golden = node.as_table();
    if (golden == nullptr) continue;  // its text will not be the file's
    const TableReader fields(*golden, file);
    entry.changes.push_back({fields.Text("name"), fields.Text("before"),
                             fields.Text("after"), fields.Text("verdict")});
  }
  return entry;
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
  const toml::table root = ParseToml(
      text, file, "`isoloss golden update` writes this file: restore it.");
  for (const toml::node& node : TableReader(root, file).Array("entry")) {
    const toml::table* entry = node.as_table();
    if (entry != nullptr) {
      history.entries_.push_back(ParseEntry(*entry, file));
    }
  }
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
  std::string text(kHead);
  for (const HistoryEntry& entry : entries_) {
    text += fmt::format("\n[[entry]]\nchain = {}\n{}", Quoted(entry.chain),
                        BodyOf(entry));
  }
  return text;
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

}  // namespace isoloss::campaign
