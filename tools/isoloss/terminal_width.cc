#include "terminal_width.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace isoloss::cli {

std::optional<int> TerminalWidth() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) != 1 ||
      ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return std::nullopt;
  }
  return size.ws_col;
}

}  // namespace isoloss::cli
