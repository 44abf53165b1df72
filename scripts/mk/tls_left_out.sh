#!/usr/bin/env bash
# Keeps the OpenSSL algorithms that TLS needs (transport/tls) in a static program, and leaves out
# the 300 others, which take 0.7 MB. Usage: tls_left_out.sh LIBCRYPTO.A
#
# Prints C code that weakly defines an empty table for each omitted algorithm. So the linker does
# not search the archive for it, and the library finds that the algorithm does not exist. An object
# that is linked for a kept algorithm keeps its other tables.
#
# openssl_loads_nothing() replaces dlopen (TLS_LIBRARIES in scripts/mk/flags.mk): no configuration
# of OpenSSL loads a provider.
set -euo pipefail

taken=(
  # digests, and functions based on them
  md5 sha1 sha224 sha256 sha384 sha512 hmac kdf_hkdf kdf_tls1_3_kdf kdf_tls1_prf
  kdf_keymgmt kdf_hkdf_keyexch kdf_tls1_prf_keyexch mac_legacy_keymgmt mac_legacy_hmac_signature
  # ciphers
  aes128gcm aes256gcm chacha20_ossl_poly1305
  # random numbers
  aes256ctr aes256ecb drbg_ctr seed_src
  # keys
  ec_keymgmt ecdh_keyexch ecdsa_signature rsa_keymgmt rsapss_keymgmt rsa_signature
  x25519_keymgmt x25519_keyexch ed25519_keymgmt ed25519_signature
  # encodings: PEM, and the key formats named in it
  pem_to_der_decoder SubjectPublicKeyInfo_der_to_der_decoder EncryptedPrivateKeyInfo_der_to_der_decoder
  {PrivateKeyInfo,SubjectPublicKeyInfo}_der_to_{ec,rsa,rsapss,ed25519,x25519}_decoder
  EC_der_to_ec_decoder RSA_der_to_rsa_decoder type_specific_no_pub_der_to_ec_decoder
  type_specific_keypair_der_to_rsa_decoder
)

echo '#include <openssl/core.h>
static const OSSL_DISPATCH nothing[1];
__attribute__((weak)) void openssl_add_all_ciphers_int(void) {}
void* openssl_loads_nothing(void) { return 0; }'
# The tables of the two providers built into a program.
nm "$1" 2>/dev/null | awk -v taken=" ${taken[*]} " '
  /^[^ ]*\.o:$/ { is_provider = /-(defltprov|baseprov)\.o:$/ }
  !is_provider || $1 != "U" || seen[$2]++ { next }
  $2 ~ /^ossl_cipher_capable_/ { print "__attribute__((weak)) int " $2 "(void) { return 0; }" }
  $2 ~ /^ossl_.*_functions$/ {
    name = substr($2, 6, length($2) - 15)
    if (index(taken, " " name " ") != 0) next
    print "extern const OSSL_DISPATCH " $2 "[1] __attribute__((weak, alias(\"nothing\")));"
  }'
