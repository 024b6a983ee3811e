#include "value_words.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "isoloss/formats/format.h"
#include "isoloss/mutants/mutant.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/experiment_keys.h"
#include "isoloss/train/presets.h"

namespace isoloss::cli {
namespace {

using Kind = ValueWords::Kind;

ValueWords WordsOf(std::vector<std::string> words) {
  return {.kind = Kind::kWords, .words = std::move(words)};
}

ValueWords Files(std::vector<std::string> patterns) {
  return {.kind = Kind::kFiles, .patterns = std::move(patterns)};
}

std::vector<std::string> RecipeNames() {
  std::vector<std::string> names;
  for (const precision::Recipe* recipe : precision::AllRecipes()) {
    names.push_back(recipe->name);
  }
  return names;
}

std::vector<std::string> FormatNames() {
  std::vector<std::string> names;
  for (const formats::Format* format : formats::AllFormats()) {
    names.emplace_back(format->name);
  }
  return names;
}

std::vector<std::string> MutantNames() {
  std::vector<std::string> names;
  for (const mutants::Mutant& mutant : mutants::AllMutants()) {
    names.emplace_back(mutant.name);
  }
  return names;
}

/// All words of commands, such as "golden" and "check".
std::vector<std::string> CommandWords() {
  std::set<std::string> words;
  const CommandEntry program = ProgramTree();
  for (const CommandEntry* command : AllCommands(program)) {
    if (command != &program) words.insert(command->words.back());
  }
  return {words.begin(), words.end()};
}

/// "train.steps="; not those of arms, whose names are the user's.
std::vector<std::string> Settings() {
  std::vector<std::string> settings;
  for (const std::string& key : train::ExperimentKeyNames()) {
    if (key.find("NAME") == std::string::npos) settings.push_back(key + "=");
  }
  return settings;
}

}  // namespace

ValueWords WordsFor(const OptionEntry& option) {
  if (!option.choices.empty()) return WordsOf(option.choices);
  const std::string& type = option.value;
  if (type == kFolder) return {.kind = Kind::kFolders};
  if (type == kAnyFile) return Files({});
  if (type == kTomlFile) return Files({"*.toml"});
  if (type == kHdf5File) return Files({"*.h5"});
  if (type == kLogFile) return Files({"*.h5", "*.journal"});
  if (type == kJsonFile) return Files({"*.json"});
  if (type == kRecipeName) return WordsOf(RecipeNames());
  if (type == kFormatName) return WordsOf(FormatNames());
  if (type == kMutantName) return WordsOf(MutantNames());
  if (type == kPresetName) return WordsOf(train::PresetNames());
  if (type == kCommandName) return WordsOf(CommandWords());
  if (type == kSetting) {
    return {.kind = Kind::kWords, .words = Settings(), .unfinished = true};
  }
  return {};
}

}  // namespace isoloss::cli
