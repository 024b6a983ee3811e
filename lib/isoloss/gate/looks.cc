#include "isoloss/gate/looks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "isoloss/base/digest.h"
#include "isoloss/base/printable.h"
#include "isoloss/gate/sealed_json.h"
#include "isoloss/stats/group_sequential.h"

namespace isoloss::gate {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr const char* kLooksRule =
    "It is the memory of `isoloss verify` of how often the seeds of this "
    "folder were tested. Restore it, or begin in another folder with --out.";
// A look takes a tenth of a second while alpha is left.
constexpr size_t kMostPlanned = 100;
constexpr size_t kMostLooks = 1000;

/// For each part of a look or a record, visit(key, part) gets the part and its
/// key in the file.
template <typename Visit, typename LookType>
void VisitLook(const Visit& visit, LookType& look) {
  visit("seeds", look.seeds);
  visit("policy_digest", look.policy_digest);
  visit("nominal_alpha", look.nominal_alpha);
  visit("outcomes", look.outcomes);
}
template <typename Visit, typename Record>
void VisitLooks(const Visit& visit, Record& record) {
  visit("experiment", record.experiment);
  visit("config_digest", record.config_digest);
  visit("corpus_digest", record.corpus_digest);
  visit("baseline_arm", record.baseline_arm);
  visit("arms", record.arms);
  visit("planned", record.planned);
}

/// Returns all fields of the record but its digest.
SealedJson ContentOf(const LookRecord& record) {
  SealedJson json{{"schema_version", kLooksSchemaVersion}};
  const auto put = [](SealedJson& object) {
    return
        [&object](const char* key, const auto& value) { object[key] = value; };
  };
  VisitLooks(put(json), record);
  json["looks"] = SealedJson::array();
  for (const Look& look : record.looks) {
    SealedJson entry;
    VisitLook(put(entry), look);
    json["looks"].push_back(std::move(entry));
  }
  return json;
}

void CheckAscends(const SealedFile& file, const char* key,
                  const std::vector<int64_t>& values, int64_t least) {
  const bool ascends = std::ranges::adjacent_find(
                           values, std::greater_equal<>()) == values.end();
  if (ascends && !values.empty() && values.front() >= least) return;
  file.Reject(fmt::format("{} is not a list of ascending integers from {}", key,
                          least));
}

void CheckLooks(const SealedFile& file, const LookRecord& record) {
  CheckAscends(file, "planned", record.planned, 1);
  if (record.planned.size() > kMostPlanned ||
      record.looks.size() > kMostLooks) {
    file.Reject(fmt::format(
        "it has {} looks and plans {}, more than {} and "
        "{}",
        record.looks.size(), record.planned.size(), kMostLooks, kMostPlanned));
  }
  const std::vector<int64_t>* before = nullptr;
  for (const Look& look : record.looks) {
    CheckAscends(file, "seeds", look.seeds, 0);
    if (before != nullptr && (look.seeds.size() <= before->size() ||
                              !std::ranges::includes(look.seeds, *before))) {
      file.Reject("a look has not all seeds of the one before it and more");
    }
    before = &look.seeds;
  }
}

/// Returns the number of looks before a look at these seeds. Empty if the
/// seeds are neither those of an earlier look nor include all of the last
/// look's.
std::optional<size_t> LooksBefore(const LookRecord& record,
                                  const std::vector<int64_t>& seeds) {
  for (size_t i = 0; i < record.looks.size(); ++i) {
    if (record.looks[i].seeds == seeds) return i;
  }
  if (record.looks.empty() ||
      std::ranges::includes(seeds, record.looks.back().seeds)) {
    return record.looks.size();
  }
  return std::nullopt;
}

std::string NoteOn(const LookRecord& record, size_t before, int64_t pairs,
                   const Policy& policy) {
  std::string note;
  for (size_t i = 0; i < before; ++i) {
    if (record.looks[i].policy_digest == PolicyDigest(policy)) continue;
    note += fmt::format("; look {} had another policy (digest {})", i + 1,
                        Printable(record.looks[i].policy_digest));
  }
  if (before < record.looks.size() &&
      record.looks[before].policy_digest != PolicyDigest(policy)) {
    note += fmt::format(
        "; this look was first taken with another policy (digest {}), which "
        "said",
        Printable(record.looks[before].policy_digest));
    for (const auto& [arm, outcome] : record.looks[before].outcomes) {
      note += fmt::format(" {} of {}", Printable(outcome), Printable(arm));
    }
  }
  if (!record.planned.empty() &&
      std::ranges::count(record.planned, pairs) == 0) {
    note += fmt::format("; none was planned at {} pairs", pairs);
  }
  return note.empty() ? note : note.substr(2);
}

std::string PairsText(int64_t pairs) {
  return fmt::format("{} pair{}", pairs, pairs == 1 ? "" : "s");
}

}  // namespace

double Looks::NominalAlpha(const Policy& policy) const {
  return taken.empty() ? policy.Alpha() : taken.back().nominal_alpha;
}

Looks Looks::At(const Policy& policy) const {
  Looks looks = *this;
  if (taken.empty() || policy.sharing == 1) return looks;
  stats::LookLevels levels(stats::Spending::kOBrienFleming, policy.Alpha(),
                           planned.back());
  for (Taken& look : looks.taken) {
    // A selection that was made after its results were seen has no level.
    if (look.nominal_alpha > 0) look.nominal_alpha = levels.Next(look.pairs);
  }
  return looks;
}

bool Looks::MayGoOn() const {
  return !taken.empty() && taken.back().pairs < planned.back();
}

std::string Looks::Sentence() const {
  if (taken.empty()) return fmt::format("unknown: {}", unknown);
  std::string text =
      fmt::format("look {} at {}, planned at {}; nominal alpha {:.4g}",
                  taken.size(), PairsText(taken.back().pairs),
                  fmt::join(planned, ", "), taken.back().nominal_alpha);
  for (size_t i = 0; i + 1 < taken.size(); ++i) {
    text += fmt::format("{} {} ({:.4g})", i == 0 ? "; before:" : ",",
                        PairsText(taken[i].pairs), taken[i].nominal_alpha);
  }
  return note.empty() ? text : fmt::format("{}; {}", text, note);
}

std::string LookRecord::Digest() const { return SealOf(ContentOf(*this)); }

LookRecord RecordOf(std::span<const runlog::Provenance* const> runs) {
  LookRecord record;
  for (const runlog::Provenance* run : runs) {
    record.experiment = run->experiment_name;
    record.config_digest = run->config_digest;
    record.corpus_digest = run->corpus_digest;
    record.baseline_arm = run->baseline_arm;
    record.arms[run->arm] = DigestToHex(
        DigestOf(fmt::format("{}\n{}", run->resolved_recipe, run->exchange)));
  }
  return record;
}

std::string ExperimentDifference(const LookRecord& kept,
                                 const LookRecord& now) {
  std::string difference;
  const auto compare = [&difference](const std::string& key,
                                     const std::string& was,
                                     const std::string& is) {
    if (was == is || !difference.empty()) return;
    difference =
        fmt::format("{} is {}, here {}", key, Printable(was), Printable(is));
  };
  compare("experiment", kept.experiment, now.experiment);
  compare("config_digest", kept.config_digest, now.config_digest);
  compare("corpus_digest", kept.corpus_digest, now.corpus_digest);
  compare("baseline_arm", kept.baseline_arm, now.baseline_arm);
  for (const auto& [arm, digest] : now.arms) {
    const auto found = kept.arms.find(arm);
    if (found == kept.arms.end()) continue;
    compare(fmt::format("the digest of recipe and exchange of arm {}", arm),
            found->second, digest);
  }
  return difference;
}

Looks LooksAt(const LookRecord& record, const std::vector<int64_t>& seeds,
              const Policy& policy) {
  Looks looks{.planned = record.planned};
  const auto pairs = static_cast<int64_t>(seeds.size());
  if (looks.planned.empty()) looks.planned = {pairs};
  const std::optional<size_t> before = LooksBefore(record, seeds);
  stats::LookLevels levels(stats::Spending::kOBrienFleming, policy.Alpha(),
                           looks.planned.back());
  const size_t earlier = before.value_or(record.looks.size());
  for (size_t i = 0; i < earlier; ++i) {
    const auto count = static_cast<int64_t>(record.looks[i].seeds.size());
    looks.taken.push_back({count, levels.Next(count)});
  }
  if (before) {
    looks.taken.push_back({pairs, levels.Next(pairs)});
    looks.note = NoteOn(record, *before, pairs, policy);
  } else {
    looks.taken.push_back({pairs, 0});
    looks.note = fmt::format(
        "these seeds are not all of look {}, whose result was known when they "
        "were chosen",
        earlier);
  }
  return looks;
}

void WriteLooks(const LookRecord& record, const std::filesystem::path& path) {
  WriteSealed(ContentOf(record), path);
}

LookRecord ReadLooks(const std::filesystem::path& path) {
  const SealedFile file(path, kLooksRule, kMostBytes);
  file.CheckVersion(kLooksSchemaVersion);
  const auto read = [&file](const SealedJson& object) {
    return [&](const char* key, auto& value) { file.Read(object, key, value); };
  };
  LookRecord record;
  VisitLooks(read(file.content()), record);
  SealedJson looks;
  file.Read(file.content(), "looks", looks);
  for (const SealedJson& look : looks) {
    VisitLook(read(look), record.looks.emplace_back());
  }
  CheckLooks(file, record);
  file.CheckSeal(record.Digest());
  return record;
}

}  // namespace isoloss::gate
