// Scripts that complete command lines in a shell. They hold all that they
// offer, and start no program.
#pragma once

#include <string>

#include "command_tree.h"

namespace isoloss::cli {

/// `text` between single quotes, as bash and zsh take it.
std::string SingleQuoted(const std::string& text);

/// For bash 4 and later, with or without the package bash-completion.
std::string BashCompletion(const CommandEntry& program);
/// A file `_isoloss` in a folder of `fpath`.
std::string ZshCompletion(const CommandEntry& program);
std::string FishCompletion(const CommandEntry& program);

}  // namespace isoloss::cli
