// Defines the symbol of this archive's interface, and has GNU ld say more about those of others.
//
// GNU ld prints the text of the section .gnu.warning.SYMBOL if an object refers to SYMBOL. The text
// has both numbers; the error that SYMBOL is undefined, which has one, follows. Other linkers print
// only the error.
#include "platform/version.h"

const char BP_INTERFACE_SYMBOL = 0;

#define BP_TEXT_OF_(word) #word
#define BP_TEXT_OF(word) BP_TEXT_OF_(word)
#define BP_OWN_NUMBER BP_TEXT_OF(BP_INTERFACE)
#define BP_OWN_VERSION \
  BP_TEXT_OF(BP_VERSION_MAJOR) "." BP_TEXT_OF(BP_VERSION_MINOR) "." BP_TEXT_OF(BP_VERSION_PATCH)
#define BP_ARCHIVE "the archive is Bedplate " BP_OWN_VERSION " with interface " BP_OWN_NUMBER

// The sections of all earlier interfaces and of the next 20: an object may be newer, too.
asm(".altmacro\n"
    ".macro bp_other_interface number\n"
    ".pushsection .gnu.warning.bedplate_interface_\\number\\()"
    "_compile_again_with_the_headers_of_this_archive, \"\", @progbits\n"
    ".ascii \"compiled against interface \\number of Bedplate, but \"\n"
    ".asciz \"" BP_ARCHIVE ": compile it again\"\n"
    ".popsection\n"
    ".endm\n"
    ".set bp_number, 1\n"
    ".rept " BP_OWN_NUMBER " + 20\n"
    ".if bp_number - " BP_OWN_NUMBER "\n"
    "bp_other_interface %bp_number\n"
    ".endif\n"
    ".set bp_number, bp_number + 1\n"
    ".endr\n"
    ".noaltmacro\n");
