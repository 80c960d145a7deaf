Buint64J0tş#Òƒè5 ÂT
Cg“ç¹áÙP	d@šÙ[JxszÊMOğ r›zzô